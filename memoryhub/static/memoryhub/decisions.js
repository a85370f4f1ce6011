'use strict';
// Pages work without this script.
{
    // A lineage that is wider than its box is scrolled to the current decision.
    for (const box of document.querySelectorAll('[data-lineage]')) {
        const current = box.querySelector('.is-current').getBoundingClientRect();
        const around = box.getBoundingClientRect();
        box.scrollLeft = current.left + current.width / 2 - around.left - around.width / 2;
        box.scrollTop = current.top + current.height / 2 - around.top - around.height / 2;
    }
    // Adds a row. Without this script the button asks the server for more rows.
    for (const rows of document.querySelectorAll('[data-rows]')) {
        const button = rows.querySelector('button');
        button.type = 'button';
        button.textContent = 'Add another';
        button.addEventListener('click', () => {
            const last = rows.querySelector('.alternative-row:last-of-type');
            const next = last.cloneNode(true);
            const number = rows.querySelectorAll('.alternative-row').length + 1;
            for (const input of next.querySelectorAll('input')) {
                input.value = '';
                input.removeAttribute('id');
                input.setAttribute('aria-label', input.getAttribute('aria-label').replace(/\d+$/, number));
            }
            last.after(next);
            next.querySelector('input').focus();
        });
    }
}

'use strict';
// Copies what is shown only once; without this script, select and copy it by hand.
for (const button of document.querySelectorAll('[data-copy]')) {
    const shown = document.getElementById(button.dataset.copy);
    const select = () => shown.select ? shown.select() : getSelection().selectAllChildren(shown);
    const label = button.firstChild;
    if (shown.select) {
        shown.addEventListener('focus', select);
    }
    button.hidden = false;
    button.addEventListener('click', async () => {
        try {
            await navigator.clipboard.writeText(shown.value ?? shown.textContent);
            label.textContent = 'Copied';
        } catch {
            shown.focus();
            select();
            label.textContent = 'Press Ctrl+C';
        }
    });
}
// Selecting a project also selects the scope “Selected projects”.
for (const box of document.querySelectorAll('.field-projects input')) {
    box.addEventListener('change', () => {
        const some = document.querySelector('[name=reach][value=some]');
        if (box.checked && some) {
            some.checked = true;
        }
    });
}

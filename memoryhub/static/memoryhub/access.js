'use strict';
// Copies a secret that is shown only once; without this script, select and copy it by hand.
for (const button of document.querySelectorAll('[data-copy]')) {
    const field = document.getElementById(button.dataset.copy);
    field.addEventListener('focus', () => field.select());
    button.hidden = false;
    button.addEventListener('click', async () => {
        try {
            await navigator.clipboard.writeText(field.value);
            button.textContent = 'Copied';
        } catch {
            field.focus();
            button.textContent = 'Press Ctrl+C';
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

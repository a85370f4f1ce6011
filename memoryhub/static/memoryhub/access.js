'use strict';
// The button beside a secret that is shown once; without this script the text can be marked and copied by hand.
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
// Choosing a project says that the token is for some.
for (const box of document.querySelectorAll('.field-projects input')) {
    box.addEventListener('change', () => {
        const some = document.querySelector('[name=reach][value=some]');
        if (box.checked && some) {
            some.checked = true;
        }
    });
}

'use strict';
// The queue by keys. Without this script every key's button, link or form does the same.
{
    const isTyping = element => element.closest('input:not([type=radio]), textarea, select');
    const open = () => document.querySelector('details.pop[open]');
    const close = () => {
        const menu = open();
        if (menu) {
            menu.open = false;
            menu.querySelector('summary').focus();
        }
        return menu;
    };
    const press = target => {
        if (target.tagName === 'SUMMARY') {
            target.parentElement.open = !target.parentElement.open;
            if (target.parentElement.open) {
                (target.parentElement.querySelector('input:not([type=hidden])') || target).focus();
            }
        } else {
            target.click();
        }
    };
    document.addEventListener('keydown', event => {
        if (event.altKey || event.isComposing) {
            return;
        }
        if (event.key === 'Escape') {
            close() || document.querySelector('[data-escape]')?.click();
        } else if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
            const form = document.querySelector('form[data-submits]');
            if (form) {
                event.preventDefault(); // a line of text would send its form by itself, a second time
                form.requestSubmit();
            }
        } else if (!event.ctrlKey && !event.metaKey && !event.repeat && !isTyping(event.target)) {
            const target = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
            if (target) {
                event.preventDefault();
                press(target);
            }
        }
    });
    // One menu is open at a time, and none once one looks elsewhere.
    for (const menu of document.querySelectorAll('details.pop')) {
        menu.addEventListener('toggle', () => {
            for (const other of document.querySelectorAll('details.pop[open]')) {
                other.open = other === menu || (other.open && !menu.open);
            }
        });
    }
    document.addEventListener('click', event => {
        const menu = open();
        if (menu && !menu.contains(event.target)) {
            menu.open = false;
        }
    });
    // What has happened is said to who does not see it: a live region speaks when it changes.
    const said = document.querySelector('[data-said]');
    if (said && said.children.length) {
        const lines = [...said.children];
        said.replaceChildren();
        requestAnimationFrame(() => said.append(...lines));
    }
    // A form to be typed into has the focus where one begins; hub.js takes one with errors to the first of them.
    if (!document.querySelector('.has-error')) {
        document.querySelector('form[data-submits] [name=title]')?.focus();
    }
}

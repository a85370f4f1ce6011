'use strict';
// Keyboard shortcuts of the queues. Each key has a button, link or form that works without this script.
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
                event.preventDefault(); // Enter in a text input would submit the form a second time
                form.requestSubmit();
            }
        } else if (!event.ctrlKey && !event.metaKey && !event.repeat && !isTyping(event.target)) {
            const target = document.querySelector(`[data-key~="${CSS.escape(event.key)}"]`);
            if (target) {
                event.preventDefault();
                press(target);
            }
        }
    });
    // At most one menu is open; a click outside closes it.
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
    // Screen readers announce a live region only when it changes.
    const live = document.querySelector('[data-announce]');
    if (live && live.children.length) {
        const lines = [...live.children];
        live.replaceChildren();
        requestAnimationFrame(() => live.append(...lines));
    }
    // Focus the first field of a form; hub.js moves the focus to the first error instead.
    if (!document.querySelector('.has-error')) {
        document.querySelector('form[data-submits] [name=title]')?.focus();
    }
}

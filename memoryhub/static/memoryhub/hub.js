'use strict';
// Open menus close when the pointer or the keyboard goes elsewhere.
{
    const close = except => {
        for (const menu of document.querySelectorAll('details.switcher[open]')) {
            if (!menu.contains(except)) {
                menu.open = false;
            }
        }
    };
    document.addEventListener('click', event => close(event.target));
    document.addEventListener('focusin', event => close(event.target));
    document.addEventListener('keydown', event => {
        const menu = document.querySelector('details.switcher[open]');
        if (event.key === 'Escape' && menu) {
            menu.open = false;
            menu.querySelector('summary').focus();
        }
    });
    // On a narrow screen the row of pages scrolls to the current one.
    const current = document.querySelector('.tabs [aria-current]');
    if (current && current.offsetLeft + current.offsetWidth > current.parentElement.clientWidth) {
        current.parentElement.scrollLeft = current.offsetLeft - 16;
    }
}

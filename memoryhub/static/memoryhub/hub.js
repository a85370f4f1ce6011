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
    // On a narrow screen the filters begin folded, so that the list comes first.
    if (window.matchMedia('(max-width: 900px)').matches) {
        for (const filter of document.querySelectorAll('#changelist-filter details:not(:has(li.selected:not(:first-child)))')) {
            filter.open = false;
        }
    }
    const current = document.querySelector('.tabs [aria-current]');
    if (current && current.offsetLeft + current.offsetWidth > current.parentElement.clientWidth) {
        current.parentElement.scrollLeft = current.offsetLeft - 16;
    }
}

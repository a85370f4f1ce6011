'use strict';
// Keys of every page: "/" searches, Ctrl-K opens the palette, "?" lists the keys. Without this script, the header links to /find.
{
    const isTyping = element => element.closest('input, textarea, select, [contenteditable]');
    const palette = document.querySelector('dialog.palette');
    const keys = document.querySelector('dialog.keys-dialog');
    if (palette) {
        const field = palette.querySelector('input');
        const list = palette.querySelector('[role=listbox]');
        const status = palette.querySelector('[role=status]');
        let waiting, request, isFresh = false, isEntered = false;

        const options = () => [...list.querySelectorAll('[role=option]')];
        const mark = option => {
            for (const other of options()) {
                other.setAttribute('aria-selected', String(other === option));
            }
            if (option) {
                field.setAttribute('aria-activedescendant', option.id);
                option.scrollIntoView({block: 'nearest'});
            } else {
                field.removeAttribute('aria-activedescendant');
            }
        };
        const load = async () => {
            request?.abort();
            request = new AbortController();
            const query = new URLSearchParams({q: field.value, from: location.pathname, fragment: '1'});
            try {
                const answer = await fetch(`/find?${query}`, {signal: request.signal});
                if (!answer.ok || answer.redirected) {
                    location.assign('/find');
                    return;
                }
                list.innerHTML = await answer.text();
                options().forEach((option, number) => {
                    option.id = `palette-option-${number}`;
                    option.tabIndex = -1;
                });
                mark(options()[0]);
                status.textContent = options().length === 1 ? '1 result' : `${options().length} results`;
                isFresh = true;
                if (isEntered && options()[0]) {
                    location.assign(options()[0].href);
                }
            } catch (error) {
                if (error.name !== 'AbortError') {
                    status.textContent = 'The hub does not answer.';
                }
            }
        };
        const open = () => {
            field.value = '';
            isFresh = isEntered = false;
            list.replaceChildren();
            palette.showModal();
            load();
        };
        field.addEventListener('input', () => {
            isFresh = isEntered = false;
            clearTimeout(waiting);
            waiting = setTimeout(load, 90);
        });
        field.addEventListener('keydown', event => {
            const by = {ArrowDown: 1, ArrowUp: -1}[event.key];
            const all = options();
            const at = all.findIndex(option => option.getAttribute('aria-selected') === 'true');
            if (by && all.length) {
                event.preventDefault();
                mark(all[(at + by + all.length) % all.length]);
            } else if (event.key === 'Enter' && !isFresh) {
                event.preventDefault();
                isEntered = true; // until the results of what was typed are there
            } else if (event.key === 'Enter' && all[at]) {
                event.preventDefault();
                event.ctrlKey || event.metaKey ? openInTab(all[at].href) : location.assign(all[at].href);
            }
        });
        const openInTab = address => window.open(address, '_blank', 'noopener');
        palette.addEventListener('click', event => {
            if (event.target === palette) {
                palette.close();
            }
        });
        for (const opener of document.querySelectorAll('[data-palette]')) {
            opener.addEventListener('click', event => {
                if (!event.ctrlKey && !event.metaKey) {
                    event.preventDefault();
                    open();
                }
            });
        }
        document.addEventListener('keydown', event => {
            if (event.key.toLowerCase() === 'k' && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey) {
                event.preventDefault();
                palette.open ? palette.close() : open();
            }
        });
    }
    for (const opener of document.querySelectorAll('[data-keys]')) {
        opener.hidden = !keys;
        opener.addEventListener('click', () => keys.showModal());
    }
    document.addEventListener('keydown', event => {
        if (event.key === 'Escape' && location.hash === '#nav') {
            location.hash = '#content-start';
        }
        if (event.altKey || event.ctrlKey || event.metaKey || event.isComposing || isTyping(event.target) || document.querySelector('dialog[open]')) {
            return;
        }
        if (event.key === '/') {
            const field = document.getElementById('find');
            if (field) {
                event.preventDefault();
                field.focus();
                field.select();
            }
        } else if (event.key === '?' && keys) {
            event.preventDefault();
            keys.showModal();
        }
    });
}

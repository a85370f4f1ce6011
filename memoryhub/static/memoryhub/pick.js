'use strict';
// Fields for numbers of items: while a person types a part of a title, matching items are offered. Without this script,
// the numbers are typed.
for (const input of document.querySelectorAll('[data-pick]')) {
    const list = document.createElement('div');
    list.id = `${input.id}_list`;
    list.className = 'pick-list';
    list.setAttribute('role', 'listbox');
    list.setAttribute('aria-label', 'Matching items');
    list.hidden = true;
    const status = document.createElement('span');
    status.className = 'visually-hidden';
    status.setAttribute('role', 'status');
    const box = document.createElement('span');
    box.className = 'pick-box';
    input.before(box);
    box.append(input, list, status);
    for (const [name, value] of Object.entries({
        'role': 'combobox', 'aria-autocomplete': 'list', 'aria-expanded': 'false', 'aria-controls': list.id,
        'placeholder': '#412, or a part of the title',
    })) {
        input.setAttribute(name, value);
    }
    input.removeAttribute('inputmode');
    let request, timer;

    const options = () => [...list.querySelectorAll('[role=option]')];
    const marked = () => options().find(option => option.getAttribute('aria-selected') === 'true');
    const mark = option => {
        for (const other of options()) {
            other.setAttribute('aria-selected', String(other === option));
        }
        option ? input.setAttribute('aria-activedescendant', option.id) : input.removeAttribute('aria-activedescendant');
        option?.scrollIntoView({block: 'nearest'});
    };
    const show = isOpen => {
        list.hidden = !isOpen;
        input.setAttribute('aria-expanded', String(isOpen));
        if (!isOpen) {
            request?.abort();
            clearTimeout(timer);
            mark(null);
        }
    };
    // The numbers that are complete, and what is being typed
    const parts = () => input.value.match(/^((?:\s*#?\d+[,\s]+)*)(.*)$/s).slice(1);
    const choose = option => {
        input.value = `${parts()[0]}#${option.dataset.number}`;
        show(false);
        status.textContent = option.textContent;
        input.dispatchEvent(new Event('input', {bubbles: true}));
    };
    const load = async () => {
        request?.abort();
        request = new AbortController();
        try {
            const answer = await fetch(`${input.dataset.pick}&q=${encodeURIComponent(parts()[1])}`, {signal: request.signal});
            if (answer.ok && !answer.redirected) {
                list.innerHTML = await answer.text();
                options().forEach((option, number) => option.id = `${list.id}_${number}`);
                show(options().length > 0);
                status.textContent = options().length === 1 ? '1 result' : `${options().length} results`;
            }
        } catch (error) {
            if (error.name !== 'AbortError') {
                show(false);
            }
        }
    };
    input.addEventListener('input', () => {
        clearTimeout(timer);
        if (/^\s*(#?\d*)?\s*$/.test(parts()[1])) {
            show(false);
        } else {
            timer = setTimeout(load, 120);
        }
    });
    input.addEventListener('keydown', event => {
        const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
        const all = options();
        if (list.hidden) {
            return;
        }
        if (step && all.length) {
            event.preventDefault();
            const at = all.indexOf(marked());
            mark(all[at < 0 ? (step > 0 ? 0 : all.length - 1) : (at + step + all.length) % all.length]);
        } else if (event.key === 'Enter') {
            event.preventDefault(); // a part of a title is no number
            choose(marked() || all[0]);
        } else if (event.key === 'Escape') {
            event.stopPropagation();
            show(false);
        }
    });
    list.addEventListener('mousedown', event => {
        const option = event.target.closest('[role=option]');
        if (option) {
            event.preventDefault();
            choose(option);
        }
    });
    input.addEventListener('blur', () => show(false));
}

'use strict';
// Pages work without this script.
{
    // Tags are separated by commas: suggestions complete the last one.
    for (const input of document.querySelectorAll('[data-suggest]')) {
        const options = [...document.getElementById(input.getAttribute('list')).options];
        const words = options.map(option => option.value);
        const suggest = () => {
            const before = input.value.slice(0, input.value.lastIndexOf(',') + 1);
            const taken = new Set(before.split(',').map(word => word.trim()));
            options.forEach((option, place) => {
                option.value = `${before}${before ? ' ' : ''}${words[place]}`;
                option.disabled = taken.has(words[place]);
            });
        };
        input.addEventListener('input', suggest);
        suggest();
    }
    // A list has a text area for each entry; a button adds one.
    for (const areas of document.querySelectorAll('[data-areas]')) {
        const label = document.querySelector(`label[for="${areas.querySelector('textarea').id}"]`).textContent;
        const button = document.createElement('button');
        button.type = 'button';
        button.className = 'quiet-button small';
        button.textContent = 'Add another';
        button.setAttribute('aria-label', `Add another: ${label}`);
        button.addEventListener('click', () => {
            const last = areas.querySelector('textarea:last-of-type');
            const next = last.cloneNode();
            const number = areas.querySelectorAll('textarea').length + 1;
            next.id = `${areas.querySelector('textarea').id}_${number}`;
            next.setAttribute('aria-label', `${label} ${number}`);
            next.value = '';
            last.after(next);
            next.focus();
        });
        areas.append(button);
    }
    // The title of a number is shown before the relation is added.
    for (const input of document.querySelectorAll('[data-lookup]')) {
        const status = document.getElementById(input.getAttribute('aria-describedby'));
        const help = status.textContent;
        let request, timer;
        const show = (text, state) => {
            status.textContent = text;
            status.classList.toggle('is-found', state === 'found');
            status.classList.toggle('is-missing', state === 'missing');
        };
        const lookUp = async () => {
            request?.abort();
            request = new AbortController();
            try {
                const address = `${input.dataset.lookup}?target=${encodeURIComponent(input.value)}`;
                const answer = await fetch(address, {signal: request.signal});
                show(await answer.text(), answer.headers.get('X-Found') === 'yes' ? 'found' : 'missing');
            } catch (error) {
                if (error.name !== 'AbortError') {
                    show(help);
                }
            }
        };
        input.addEventListener('input', () => {
            clearTimeout(timer);
            request?.abort();
            if (input.value.trim() && !(input.dataset.pick && /[^\d#\s]/.test(input.value))) { // a title is being typed
                timer = setTimeout(lookUp, 150);
            } else {
                show(help);
            }
        });
    }
}

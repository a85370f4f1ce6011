'use strict';
// Everything here makes a page handier that works without it.
{
    // Tags are typed in a row, separated by commas: what is suggested continues the row.
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
    // A list has an area for each entry; a button offers one more.
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
    // What a number names is said before the relation is added.
    for (const input of document.querySelectorAll('[data-lookup]')) {
        const said = document.getElementById(input.getAttribute('aria-describedby'));
        const help = said.textContent;
        let request, waiting;
        const say = (text, state) => {
            said.textContent = text;
            said.classList.toggle('is-found', state === 'found');
            said.classList.toggle('is-missing', state === 'missing');
        };
        const lookUp = async () => {
            request?.abort();
            request = new AbortController();
            try {
                const address = `${input.dataset.lookup}?target=${encodeURIComponent(input.value)}`;
                const answer = await fetch(address, {signal: request.signal});
                say(await answer.text(), answer.headers.get('X-Found') === 'yes' ? 'found' : 'missing');
            } catch (error) {
                if (error.name !== 'AbortError') {
                    say(help);
                }
            }
        };
        input.addEventListener('input', () => {
            clearTimeout(waiting);
            request?.abort();
            if (input.value.trim()) {
                waiting = setTimeout(lookUp, 150);
            } else {
                say(help);
            }
        });
    }
}

'use strict';
// Sends requests from the reference, with the session or with a token. Without this script, the page is a plain list.
{
    const routes = document.getElementById('api-routes');
    const token = document.getElementById('api-token');
    token.form.hidden = false;
    token.form.addEventListener('submit', event => event.preventDefault());
    for (const form of routes.querySelectorAll('form.try')) {
        const body = form.querySelector('textarea');
        const status = form.querySelector('[role=status]');
        const shown = form.querySelector('pre');
        form.hidden = false;
        form.addEventListener('submit', async event => {
            event.preventDefault();
            const query = new URLSearchParams();
            let path = form.dataset.path;
            for (const field of form.querySelectorAll('input')) {
                if (field.dataset.in === 'path') {
                    path = path.replace(`{${field.name}}`, encodeURIComponent(field.value));
                } else if (field.value) {
                    query.append(field.name, field.value);
                }
            }
            const headers = {};
            if (token.value) {
                headers.Authorization = `Bearer ${token.value}`;
            } else {
                headers['X-CSRFToken'] = routes.dataset.csrfToken;
            }
            if (body) {
                headers['Content-Type'] = 'application/json';
            }
            status.textContent = 'Sending…';
            try {
                const options = {method: form.dataset.method, headers, body: body?.value, credentials: token.value ? 'omit' : 'same-origin'};
                const answer = await fetch(query.size ? `${path}?${query}` : path, options);
                const text = await answer.text();
                status.textContent = `${answer.status} ${answer.statusText}`;
                try {
                    shown.textContent = JSON.stringify(JSON.parse(text), null, 2);
                } catch {
                    shown.textContent = text;
                }
                shown.hidden = !text;
            } catch {
                status.textContent = 'The hub does not answer.';
            }
        });
    }
    // A link to a route opens it.
    const open = () => {
        const route = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
        if (route?.tagName === 'DETAILS') {
            route.open = true;
        }
    };
    addEventListener('hashchange', open);
    open();
}

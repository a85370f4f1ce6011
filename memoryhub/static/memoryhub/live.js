'use strict';
// Follow changes: the stream at data-live sends the version of what the page shows. When it differs, fetch the page
// again and renew the elements with data-live-part. Nothing is open while the page is hidden.
{
    const mark = document.querySelector('[data-live]');
    const LEAST_PAUSE = 400, RETRY_PAUSE = 2000, NEW_FOR = 4000, ANNOUNCE_EVERY = 5000, NEAR_END = 120;
    const pause = time => new Promise(resolve => setTimeout(resolve, time));
    let stream = null, version = mark.dataset.version, wanted = version, isRenewing = false, renewedAt = -LEAST_PAUSE;

    const status = document.createElement('div');
    status.className = 'visually-hidden';
    status.setAttribute('role', 'status');
    const more = document.createElement('button');
    more.type = 'button';
    more.className = 'live-more';
    more.hidden = true;
    document.getElementById('content').append(status, more);

    const show = (state, text) => {
        mark.hidden = false;
        mark.dataset.state = state;
        mark.querySelector('.live-text').textContent = text;
    };
    const disconnect = () => {
        stream?.close();
        stream = null;
    };
    const stop = () => {
        disconnect();
        show('off', 'Not live');
    };
    const connect = () => {
        if (document.hidden || stream || mark.dataset.state === 'off') {
            return;
        }
        stream = new EventSource(mark.dataset.live);
        stream.onopen = () => show('on', 'Live');
        stream.onmessage = event => {
            wanted = event.data;
            renew();
        };
        stream.onerror = () => stream.readyState === EventSource.CLOSED ? stop() : show('wait', 'Reconnecting');
    };
    const renew = async () => {
        if (isRenewing) {
            return;
        }
        isRenewing = true;
        try {
            while (stream && wanted !== version) {
                await pause(Math.max(renewedAt + LEAST_PAUSE - performance.now(), 0));
                renewedAt = performance.now();
                const asked = wanted, fetched = await fetchPage();
                if (!stream) { // it was refused, or the page was hidden, meanwhile
                    return;
                }
                if (fetched) {
                    showPage(fetched, asked);
                } else {
                    show('wait', 'Reconnecting');
                    await pause(RETRY_PAUSE);
                }
            }
        } finally {
            isRenewing = false;
        }
    };
    // Return null where the failure may pass, as while the store is locked or the hub restarts.
    const fetchPage = async () => {
        try {
            const answer = await fetch(location.href, {headers: {'Hub-Live': '1'}});
            return answer.status > 500 ? null : {answer, text: await answer.text()};
        } catch {
            return null;
        }
    };
    const showPage = ({answer, text}, asked) => {
        const page = new DOMParser().parseFromString(text, 'text/html');
        const fresh = page.querySelector('[data-live]');
        if (!answer.ok || answer.redirected || !fresh) { // what the page shows is gone
            stop();
            return;
        }
        if (page.querySelector('[data-live-end]')) {
            location.reload(); // leads on to the result, and to its messages
            return;
        }
        const isAtEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - NEAR_END;
        for (const part of document.querySelectorAll('[data-live-part][id]')) {
            const found = page.getElementById(part.id);
            if (found) {
                morph(part, found);
            }
        }
        if (stream.readyState === EventSource.OPEN) {
            show('on', 'Live');
        }
        version = fresh.dataset.version;
        wanted = wanted === asked ? version : wanted;
        showNew(isAtEnd && document.querySelector('[data-live-tail]'));
    };

    // Change an element into another, keeping the nodes that are the same: so the focus, the selection, the scroll
    // position and open details stay.
    const KEPT = new Set(['open', 'data-new']);
    let added = [];
    const morph = (old, fresh) => {
        if (old === mark || old.isEqualNode(fresh)) {
            return;
        }
        for (const {name, value} of fresh.attributes) {
            if (!KEPT.has(name) && old.getAttribute(name) !== value) {
                old.setAttribute(name, value);
            }
        }
        for (const name of old.getAttributeNames()) {
            if (!KEPT.has(name) && !fresh.hasAttribute(name)) {
                old.removeAttribute(name);
            }
        }
        morphChildren(old, fresh);
    };
    const morphChildren = (old, fresh) => {
        const ids = new Set([...fresh.children].map(child => child.id));
        for (const child of [...old.children]) {
            if (child.id && !ids.has(child.id)) {
                child.remove();
            }
        }
        const named = new Map([...old.children].filter(child => child.id).map(child => [child.id, child]));
        let next = old.firstChild;
        const skip = () => {
            const left = next;
            next = next.nextSibling;
            return left;
        };
        for (const node of fresh.childNodes) {
            const same = node.id ? named.get(node.id) : next;
            while (node.id && same && next && next !== same && !next.id) {
                skip().remove();
            }
            if (same && same === next && same.nodeName === node.nodeName && (node.id || !same.id)) {
                skip();
                node.nodeType === Node.ELEMENT_NODE ? morph(same, node) : same.nodeValue = node.nodeValue;
            } else if (node.id && same) {
                old.insertBefore(same, next);
                morph(same, node);
            } else {
                const copy = old.insertBefore(document.importNode(node, true), next);
                if (node.id) {
                    added.push(copy);
                }
            }
        }
        while (next) {
            skip().remove();
        }
    };

    // Mark new rows, tell screen readers how many, and offer the way to those that are out of view.
    let unseen = [], unannounced = 0, announcing = false;
    const seen = new IntersectionObserver(entries => {
        const passed = new Set(entries.filter(entry => entry.isIntersecting).map(entry => entry.target));
        unseen = unseen.filter(row => row.isConnected && !passed.has(row));
        passed.forEach(row => seen.unobserve(row));
        offer();
    });
    const offer = () => {
        more.hidden = !unseen.length;
        more.textContent = `${unseen.length} new`;
    };
    const showNew = follows => {
        const rows = added.filter(row => row.isConnected && row.matches('li, tr'));
        added = [];
        for (const row of rows) {
            row.dataset.new = '';
            setTimeout(() => row.removeAttribute('data-new'), NEW_FOR);
            seen.observe(row);
        }
        unseen.push(...rows);
        if (follows && rows.length) {
            rows.at(-1).scrollIntoView({block: 'end'});
        }
        offer();
        announce(rows.length);
    };
    const announce = async count => {
        unannounced += count;
        if (unannounced && !announcing) {
            announcing = true;
            status.textContent = unannounced === 1 ? '1 new row' : `${unannounced} new rows`;
            unannounced = 0;
            await pause(ANNOUNCE_EVERY);
            announcing = false;
            announce(0);
        }
    };
    more.addEventListener('click', () => {
        const row = unseen.find(found => found.isConnected);
        const smooth = matchMedia('(prefers-reduced-motion: no-preference)').matches;
        for (let fold = row?.closest('details'); fold; fold = fold.parentElement.closest('details')) {
            fold.open = true;
        }
        row?.scrollIntoView({block: 'center', behavior: smooth ? 'smooth' : 'auto'});
        (row?.querySelector('summary, a, button'))?.focus({preventScroll: true});
    });

    document.addEventListener('visibilitychange', () => document.hidden ? disconnect() : connect());
    addEventListener('pagehide', disconnect);
    addEventListener('pageshow', connect);
    connect();
}

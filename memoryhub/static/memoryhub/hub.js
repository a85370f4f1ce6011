'use strict';
// ViewerTimeZone reads this cookie and shows times in the browser's zone from the next page on.
document.cookie = `hub_time_zone=${Intl.DateTimeFormat().resolvedOptions().timeZone}; path=/; max-age=31536000; samesite=lax`;
// Close open menus on a click or focus outside.
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
}
// Focus the first field with an error, or the element marked with data-focus.
{
    const wrong = document.querySelector('.has-error :is(input:not([type=hidden]), textarea, select)');
    (wrong || document.querySelector('[data-focus]'))?.focus();
}
// Replay: the slider, arrows and buttons fetch an event; without this script they are links and forms.
{
    const player = document.querySelector('[data-replay]');
    if (player) {
        const last = Number(player.dataset.last);
        const slider = player.querySelector('[type=range]');
        const number = player.querySelector('[type=number]');
        const play = player.querySelector('[data-play]');
        const shown = document.getElementById('replayed');
        const address = (position, extra) => `?position=${position}${extra || ''}`;
        let waiting, request, next, isPlaying = false;

        const update = position => {
            slider.value = number.value = position;
            for (const step of player.querySelectorAll('[data-step]')) {
                const to = position + Number(step.dataset.step);
                const isThere = to >= 1 && to <= last;
                step.setAttribute('aria-disabled', String(!isThere));
                isThere ? step.setAttribute('href', address(to)) : step.removeAttribute('href');
            }
        };
        const load = async position => {
            request?.abort();
            request = new AbortController();
            try {
                const answer = await fetch(address(position, '&fragment=1'), {signal: request.signal});
                if (!answer.ok || answer.redirected) {
                    location.assign(address(position));
                    return;
                }
                shown.innerHTML = await answer.text();
                const found = shown.firstElementChild.dataset;
                slider.setAttribute('aria-valuetext', found.label);
                history.replaceState(null, '', address(found.position));
            } catch (error) {
                if (error.name !== 'AbortError') {
                    location.assign(address(position));
                }
            }
        };
        const go = (position, delay) => {
            const to = Math.min(Math.max(Number(position) || 1, 1), last);
            update(to);
            clearTimeout(waiting);
            waiting = setTimeout(() => load(to), delay);
        };
        const setPlaying = value => {
            isPlaying = value;
            clearTimeout(next);
            play.textContent = value ? 'Pause' : 'Play';
        };
        const show = async position => {
            update(position);
            clearTimeout(waiting);
            await load(position);
            clearTimeout(next);
            next = setTimeout(advance, 900);
        };
        const advance = () => {
            const to = Number(slider.value) + 1;
            if (isPlaying && to <= last) {
                show(to);
            } else if (isPlaying) {
                setPlaying(false);
            }
        };

        play.hidden = false;
        player.querySelector('[data-without-script]').hidden = true;
        slider.addEventListener('input', () => go(slider.value, 120));
        player.addEventListener('submit', event => {
            event.preventDefault();
            go(number.value, 0);
        });
        player.addEventListener('click', event => {
            const step = event.target.closest('[data-step]');
            if (step) {
                event.preventDefault();
                setPlaying(false);
                go(Number(slider.value) + Number(step.dataset.step), 0);
            }
        });
        play.addEventListener('click', () => {
            setPlaying(!isPlaying);
            if (isPlaying && Number(slider.value) === last) {
                show(1);
            } else {
                advance();
            }
        });
        shown.addEventListener('click', event => {
            const link = event.target.closest('.chain-links a');
            if (link && !event.ctrlKey && !event.metaKey) {
                event.preventDefault();
                go(new URL(link.href).searchParams.get('position'), 0);
            }
        });
        document.addEventListener('keydown', event => {
            const by = {ArrowLeft: -1, ArrowRight: 1}[event.key];
            const isTyping = event.target.closest('input, textarea, select, summary, pre');
            if (by && !isTyping && !event.altKey && !event.ctrlKey && !event.metaKey) {
                event.preventDefault();
                go(Number(slider.value) + by, 120);
            }
        });
    }
}

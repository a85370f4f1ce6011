'use strict';
// The list of the inbox: selection by ranges and by keys, kept from page to page of this tab. Without this script, boxes
// are checked one by one.
{
    const list = document.querySelector('.inbox-list');
    const rows = list.querySelector('.inbox-rows');
    const KEPT = `inbox ${location.pathname.split('/admin/')[0]}`;
    const boxes = () => [...list.querySelectorAll('input[name=entry]')];
    const keep = () => sessionStorage.setItem(KEPT, JSON.stringify({
        chosen: boxes().filter(box => box.checked).map(box => box.value),
        scrolled: rows.scrollTop,
    }));

    let kept = {};
    try {
        kept = JSON.parse(sessionStorage.getItem(KEPT)) || {};
    } catch {
        sessionStorage.removeItem(KEPT);
    }
    for (const box of boxes()) {
        box.checked = Boolean(kept.chosen?.includes(box.value));
    }
    rows.scrollTop = kept.scrolled || 0;
    const here = rows.querySelector('.here');
    if (here && (here.offsetTop < rows.scrollTop || here.offsetTop + here.offsetHeight > rows.scrollTop + rows.clientHeight)) {
        rows.scrollTop = here.offsetTop - rows.clientHeight / 3;
    }

    // Shift-click selects from the last box that was clicked.
    let last = null, isShift = false;
    list.addEventListener('click', event => {
        isShift = event.shiftKey;
        const box = event.target.closest('input[name=entry]');
        if (box) {
            const all = boxes(), from = all.indexOf(last), to = all.indexOf(box);
            if (isShift && from >= 0) {
                for (const between of all.slice(Math.min(from, to), Math.max(from, to) + 1)) {
                    between.checked = box.checked;
                }
            }
            last = box;
            keep();
        }
    });
    for (const button of list.querySelectorAll('[data-select-group]')) {
        const own = [...button.closest('section').querySelectorAll('input[name=entry]')];
        button.hidden = !own.length;
        button.addEventListener('click', () => {
            const all = own.every(box => box.checked);
            own.forEach(box => box.checked = !all);
            keep();
        });
    }
    list.addEventListener('submit', () => sessionStorage.removeItem(KEPT));
    addEventListener('pagehide', () => sessionStorage.getItem(KEPT) === null && !boxes().some(box => box.checked) ? null : keep());

    // Shift-J and Shift-K select the item and go on.
    document.addEventListener('keydown', event => {
        const step = {J: 'j', K: 'k'}[event.key];
        if (step && event.shiftKey && !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest('input:not([type=checkbox]), textarea, select')) {
            const box = rows.querySelector('.here input[name=entry]');
            if (box) {
                box.checked = true;
            }
            keep();
            document.querySelector(`a[data-key="${step}"]`)?.click();
        }
    });
}

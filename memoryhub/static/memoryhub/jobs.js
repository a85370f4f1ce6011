'use strict';
// While a job runs or is queued, fetch the list every two seconds; keep open details and the focus.
{
    const list = document.getElementById('jobs');
    const isBusy = () => list.querySelector('.jobs').dataset.busy === 'true';
    const renew = async () => {
        if (list.querySelector('.plan-form :is(select, input):focus')) {
            return; // keeps unsaved input
        }
        const answer = await fetch('?fragment=1');
        if (!answer.ok || answer.redirected) {
            location.reload();
            return;
        }
        const text = await answer.text();
        const open = [...list.querySelectorAll('details[open]')].map(details => details.id);
        const active = document.activeElement;
        const focused = list.contains(active) ? active.id || active.closest('[id]').id : '';
        const wasSummary = active.tagName === 'SUMMARY';
        list.innerHTML = text;
        for (const id of open) {
            const details = document.getElementById(id);
            if (details) {
                details.open = true;
            }
        }
        if (focused) {
            const again = document.getElementById(focused);
            (wasSummary && again ? again.querySelector('summary') : again)?.focus();
        }
    };
    const keep = () => {
        if (isBusy()) {
            setTimeout(() => renew().catch(() => {}).then(keep), 2000);
        }
    };
    keep();
}

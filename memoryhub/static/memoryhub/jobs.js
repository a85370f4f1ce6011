'use strict';
// While a job runs or waits, the list is fetched again every two seconds; what is open and focused stays so.
{
    const place = document.getElementById('jobs');
    const isBusy = () => place.querySelector('.jobs').dataset.busy === 'true';
    const renew = async () => {
        if (place.querySelector('.plan-form :is(select, input):focus')) {
            return; // what is being typed there would be lost
        }
        const answer = await fetch('?fragment=1');
        if (!answer.ok || answer.redirected) {
            location.reload();
            return;
        }
        const text = await answer.text();
        const open = [...place.querySelectorAll('details[open]')].map(each => each.id);
        const active = document.activeElement;
        const focused = place.contains(active) ? active.id || active.closest('[id]').id : '';
        const wasSummary = active.tagName === 'SUMMARY';
        place.innerHTML = text;
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

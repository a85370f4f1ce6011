'use strict';
// Arrow keys move from box to box of a diagram, "g" shows the graph of the box. Without this script, Tab moves.
for (const diagram of document.querySelectorAll('[data-diagram]')) {
    const nodes = [...diagram.querySelectorAll('a')];
    const middle = node => {
        const {left, top, width, height} = node.querySelector('rect').getBoundingClientRect();
        return [left + width / 2, top + height / 2];
    };
    const STEPS = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
    const nearest = (from, [x, y]) => {
        const [startX, startY] = middle(from);
        let best = null, least = Infinity;
        for (const node of nodes) {
            const [toX, toY] = middle(node);
            const along = (toX - startX) * x + (toY - startY) * y;
            const across = Math.abs((toX - startX) * y) + Math.abs((toY - startY) * x);
            if (node !== from && along > 4 && (x || across < 60) && along + 2 * across < least) {
                least = along + 2 * across;
                best = node;
            }
        }
        return best;
    };
    const current = diagram.querySelector('.is-current');
    const [x, y] = middle(current);
    const around = diagram.getBoundingClientRect();
    diagram.scrollLeft = x - around.left - around.width / 2;
    diagram.scrollTop = y - around.top - around.height / 2;
    diagram.addEventListener('keydown', event => {
        if (event.altKey || event.ctrlKey || event.metaKey) {
            return;
        }
        const from = event.target.closest('a');
        const step = STEPS[event.key];
        if (step) {
            event.preventDefault();
            (from ? nearest(from, step) || from : current).focus();
        } else if (event.key === 'g' && from?.dataset.graph) {
            location.assign(from.dataset.graph);
        }
    });
}

// Draws a timeline into each <figure class="timeline">: its data stands in a script inside it.
const PALETTE = ["#2563eb", "#059669", "#d97706", "#7c3aed", "#db2777", "#0891b2", "#65a30d",
  "#dc2626", "#4f46e5", "#0d9488"];
const LANE = 34, LEFT = 90;

function timeline(figure) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const canvas = figure.querySelector("canvas"), tip = figure.querySelector("figcaption");
  let from = 0, to = data.total, grip = null;

  function draw() {
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
    if (!width) return;
    canvas.width = width * ratio;
    canvas.height = canvas.clientHeight * ratio;
    const c = canvas.getContext("2d");
    c.scale(ratio, ratio);
    c.font = "12px system-ui";
    const text = getComputedStyle(document.body).color, scale = (width - LEFT) / (to - from);
    c.fillStyle = text;
    data.tracks.forEach((track, row) => c.fillText(track, 4, row * LANE + 24));
    for (const [row, start, end, name] of data.events) {
      if (end < from || start > to) continue;
      const x = Math.max(LEFT, LEFT + (start - from) * scale);
      c.fillStyle = PALETTE[name % PALETTE.length];
      c.fillRect(x, row * LANE + 8, Math.max(.5, LEFT + (end - from) * scale - x), LANE - 10);
    }
    c.fillStyle = text;
    for (let i = 0; i <= 8; i++) {
      const t = from + (to - from) * i / 8;
      c.fillText(t.toFixed(to - from < 20 ? 2 : 1) + " us",
        Math.min(width - 60, LEFT + (t - from) * scale), data.tracks.length * LANE + 16);
    }
  }

  function show(start, span) {
    span = Math.min(data.total, span);
    from = Math.max(0, Math.min(start, data.total - span));
    to = from + span;
    draw();
  }

  function zoom(factor, at) {
    show(at - (at - from) * factor, (to - from) * factor);
  }

  function time(event) {
    const box = canvas.getBoundingClientRect();
    return from + (event.clientX - box.left - LEFT) * (to - from) / (box.width - LEFT);
  }

  function point(event) {
    const t = time(event);
    const row = Math.floor((event.clientY - canvas.getBoundingClientRect().top) / LANE);
    const hit = data.events.find(([r, start, end]) => r === row && start <= t && t <= end);
    tip.textContent = hit ? `${data.names[hit[3]]}  ${hit[1].toFixed(3)} to ${hit[2].toFixed(3)} us` +
      `  ${data.lines[hit[4]]}` : "";
  }

  canvas.addEventListener("wheel", event => {
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : .8, time(event));
  }, { passive: false });
  canvas.addEventListener("pointerdown", event => {
    grip = time(event);
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", () => { grip = null; });
  canvas.addEventListener("pointermove", event => {
    if (grip === null) point(event); else show(from + grip - time(event), to - from);
  });
  const [closer, farther, all] = figure.querySelectorAll("button");
  closer.onclick = () => zoom(.5, (from + to) / 2);
  farther.onclick = () => zoom(2, (from + to) / 2);
  all.onclick = () => show(0, data.total);
  window.addEventListener("resize", draw);
  figure.closest("details")?.addEventListener("toggle", draw);
  draw();
}

document.querySelectorAll("figure.timeline").forEach(timeline);

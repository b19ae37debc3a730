// Pan and zoom of a canvas: pointer, wheel, pinch.
const MAX_ZOOM = 40;

export class Viewport {
  scale = 1;
  x = 0;
  y = 0;
  #fitted = 1;
  #pointers = new Map();
  #moved = 0;

  /** change() is called when the view changes, hover(point) and click(point) with a place on the canvas. */
  constructor(canvas, { change, hover, click }) {
    Object.assign(this, { canvas, change });
    const on = (kind, act) => canvas.addEventListener(kind, act);
    canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    on("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.#pointers.set(event.pointerId, this.#place(event));
      if (this.#pointers.size === 1) this.#moved = 0;
    });
    on("pointermove", (event) => {
      if (this.#pointers.has(event.pointerId)) this.#drag(event);
      else hover(this.#place(event));
    });
    on("pointerup", (event) => {
      if (this.#pointers.size === 1 && this.#moved < 5) click(this.#place(event));
      this.#pointers.delete(event.pointerId);
    });
    on("pointercancel", (event) => this.#pointers.delete(event.pointerId));
    on("pointerleave", () => hover(null));
  }

  fit(width, height) {
    const { clientWidth, clientHeight } = this.canvas;
    this.#fitted = this.scale = Math.min(clientWidth / width, clientHeight / height) || 1;
    this.x = (clientWidth - width * this.scale) / 2;
    this.y = (clientHeight - height * this.scale) / 2;
    this.change();
  }

  zoom(factor, place = { x: this.canvas.clientWidth / 2, y: this.canvas.clientHeight / 2 }) {
    const scale = Math.min(Math.max(this.scale * factor, this.#fitted / 2), this.#fitted * MAX_ZOOM);
    const actual = scale / this.scale;
    this.x = place.x - (place.x - this.x) * actual;
    this.y = place.y - (place.y - this.y) * actual;
    this.scale = scale;
    this.change();
  }

  move(dx, dy) {
    this.x += dx;
    this.y += dy;
    this.change();
  }

  /** Move so that a place of the drawing is in view. */
  reveal(point) {
    const { clientWidth, clientHeight } = this.canvas;
    const [x, y] = [point.x * this.scale + this.x, point.y * this.scale + this.y];
    const outside = x < 0 || y < 0 || x > clientWidth || y > clientHeight;
    if (outside && clientWidth) this.move(clientWidth / 2 - x, clientHeight / 2 - y);
  }

  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  #wheel(event) {
    event.preventDefault();
    this.zoom(Math.exp(-event.deltaY * (event.deltaMode === 1 ? 0.05 : 0.0015)), this.#place(event));
  }

  #drag(event) {
    const old = this.#pointers.get(event.pointerId);
    const now = this.#place(event);
    this.#moved += Math.hypot(now.x - old.x, now.y - old.y);
    if (this.#pointers.size === 2) {
      const [, other] = [...this.#pointers].find(([id]) => id !== event.pointerId);
      const before = Math.hypot(old.x - other.x, old.y - other.y);
      const after = Math.hypot(now.x - other.x, now.y - other.y);
      if (before > 0) this.zoom(after / before, { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 });
    } else if (this.#moved >= 5) {
      this.move(now.x - old.x, now.y - old.y);
    }
    this.#pointers.set(event.pointerId, now);
  }
}

// The view as a module for anywidget: what is seen is asked of Python, and comes as an image and columns of points.
// `points.js` and `view.js` stand before it.

function render({ model, el }) {
  const root = make("div");
  // JupyterLab's keys, of which 0 and arrows are some, are not meant here.
  root.dataset.lmSuppressShortcuts = "true";
  root.style.height = `${model.get("height")}px`;
  el.append(root);
  // Answers come to all views of a model, in whatever window: each view numbers its own questions.
  const own = Math.random().toString(36).slice(2);
  let answer = null, number = 0;
  const come = (told, buffers) => {
    if (!answer || told.number !== `${own} ${number}`) return;
    const give = answer;
    answer = null;
    const [picture, ...columns] = buffers.map((own) =>
      own.buffer ? own.buffer.slice(own.byteOffset, own.byteOffset + own.byteLength) : own);
    createImageBitmap(new Blob([picture], { type: "image/webp" })).then(
      (image) => give({ image, window: told.window, points: told.points, columns }));
  };
  model.on("msg:custom", come);
  const close = show(root, model.get("page"), (wanted) => new Promise((resolve) => {
    answer = resolve;
    model.send({ number: `${own} ${++number}`, ...wanted });
  }));
  return () => { model.off("msg:custom", come); close(); };
}

export default { render };

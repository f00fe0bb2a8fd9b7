// Rows shown one by one: their numbers, labels and images.

const VIEWS = ["X", "Y"];
const labels = DATA.labels;
const labelCodes = labels?.kind === "category" ? unpack(labels.codes).column(0) : null;
const labelNumbers = labels?.kind === "number" ? unpack(labels.values).column(0) : null;

function labelOf(index) {
  if (labelCodes) return labels.names[labelCodes[index]];
  return labelNumbers ? String(Number(labelNumbers[index].toPrecision(4))) : null;
}

function textElement(tag, text, className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = className;
  return made;
}

// What is known about a row of some views: texts, number, label.
function captions(index, views) {
  const texts = views.flatMap((view) => DATA.texts[view]?.[index] || []);
  const label = labelOf(index);
  const lines = [`row ${DATA.rows[index]}`, ...(label === null ? [] : [`label ${label}`])];
  return [
    ...[...new Set(texts)].map((text) => textElement("p", text, "text")),
    ...lines.map((text) => textElement("span", text)),
  ];
}

// The image of a row, about `height` pixels high, or null if rows of the view are not images.
function rowImage(view, index, height) {
  const sprite = DATA.images[view];
  if (!sprite) return null;
  const scale = Math.max(height / sprite.height, 16 / sprite.width);
  const [w, h] = [Math.round(sprite.width * scale), Math.round(sprite.height * scale)];
  const image = document.createElement("div");
  image.className = `image image-${view}`;
  image.setAttribute("role", "img");
  image.setAttribute("aria-label", `row ${DATA.rows[index]} of ${VIEWS[view]}`);
  image.style.width = `${w}px`;
  image.style.height = `${h}px`;
  image.style.backgroundSize = `${w * sprite.columns}px ${h * sprite.lines}px`;
  const [y, x] = [Math.floor(index / sprite.columns), index % sprite.columns];
  image.style.backgroundPosition = `${-w * x}px ${-h * y}px`;
  return image;
}

// Pick a row of one view: its nearest rows of the other, right and wrong marked.

const found = {
  matches: DATA.retrieval.matches.map(unpack),
  similarities: DATA.retrieval.similarities.map(unpack),
  ranks: DATA.retrieval.ranks.map(unpack),
};
const picked = { index: 0, listeners: [] };

function captions(index) {
  const label = labelOf(index);
  const lines = [`row ${DATA.rows[index]}`, ...(label === null ? [] : [`label ${label}`])];
  return lines.map((line) => textElement("span", line));
}

// A row that is looked from or for, under a title.
function given(title, view, index) {
  const shown = document.createElement("div");
  const image = picture(view, index, 96);
  shown.append(textElement("h3", title), ...(image ? [image] : []), ...captions(index));
  return shown;
}

// What a match is to the row that was picked: a sign, a word, a class.
function verdictOf(index, match) {
  if (match === index) return ["✓", "partner", "right"];
  if (labelCodes && labelCodes[match] === labelCodes[index]) return ["≈", "same label", "akin"];
  return ["✗", "other", "wrong"];
}

function tile(view, match, index, similarity) {
  const [sign, word, kind] = verdictOf(index, match);
  const item = textElement("li", "", kind);
  item.dataset.row = DATA.rows[match];
  const shown = picture(view, match, 72);
  if (shown) item.append(shown);
  item.append(textElement("strong", `${sign} ${word}`), ...captions(match));
  const cosine = DATA.retrieval.similarity === "cosine";
  const near = cosine ? similarity.toFixed(3) : `distance ${(-similarity).toPrecision(3)}`;
  item.append(textElement("span", near.replace("-", "−")));
  return item;
}

function showMatches() {
  const from = Number(chosen("direction"));
  const { index } = picked;
  const row = DATA.rows[index];
  element("row").value = row;

  const query = [given(`Picked, of ${VIEWS[from]}`, from, index)];
  if (DATA.pictures[1 - from]) query.push(given(`Partner, of ${VIEWS[1 - from]}`, 1 - from, index));
  element("retrieval-query").replaceChildren(...query);

  const similarities = found.similarities[from].row(index);
  const tiles = found.matches[from].row(index).map((match, k) =>
    tile(1 - from, match, index, similarities[k]));
  element("retrieval-matches").replaceChildren(...tiles);

  const rank = found.ranks[from].at(index, 0) / 2;
  const place = rank === 1 ? "the nearest of all" : `number ${rank} by nearness`;
  element("retrieval-verdict").textContent =
    `Row ${row} of ${VIEWS[from]}: among ${DATA.rows.length} rows of ${VIEWS[1 - from]} ` +
    `its partner is ${place}.`;
}

function pick(index) {
  const n = DATA.rows.length;
  picked.index = (index + n) % n;
  showMatches();
  for (const listener of picked.listeners) listener();
}

// Not every row need be shown: the next that is, in the direction of the change.
function pickNumber(wanted) {
  const current = DATA.rows[picked.index];
  const after = DATA.rows.findIndex((row) => row >= wanted);
  if (wanted >= current || after === 0) return pick(after < 0 ? DATA.rows.length - 1 : after);
  pick(after < 0 ? DATA.rows.length - 1 : DATA.rows[after] === wanted ? after : after - 1);
}

element("row").addEventListener("change", (event) => {
  const wanted = event.target.valueAsNumber;
  if (Number.isFinite(wanted)) pickNumber(wanted);
  else showMatches();
});
element("row-previous").addEventListener("click", () => pick(picked.index - 1));
element("row-next").addEventListener("click", () => pick(picked.index + 1));
element("row-random").addEventListener("click", () =>
  pick(Math.floor(Math.random() * DATA.rows.length)));
onChoice("direction", showMatches);
showMatches();

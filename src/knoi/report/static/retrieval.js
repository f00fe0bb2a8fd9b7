// Cross-view retrieval: choose a row of one view and see its nearest rows of the other.

const retrieval = {
  matches: DATA.retrieval.matches.map(unpack),
  similarities: DATA.retrieval.similarities.map(unpack),
  ranks: DATA.retrieval.ranks.map(unpack),
};
const query = { index: 0, listeners: [] };

// The chosen row or its partner, under a title.
function queryRow(title, view, index) {
  const shown = document.createElement("div");
  const image = rowImage(view, index, 96);
  shown.append(textElement("h3", title), ...(image ? [image] : []), ...captions(index, [view]));
  return shown;
}

// How a match relates to the chosen row: a sign, a word, a class.
function relation(index, match) {
  if (match === index) return ["✓", "partner", "partner"];
  if (labelCodes && labelCodes[match] === labelCodes[index])
    return ["≈", "same label", "same-label"];
  return ["✗", "other", "other"];
}

function tile(view, match, index, similarity) {
  const [sign, word, kind] = relation(index, match);
  const item = textElement("li", "", kind);
  item.dataset.row = DATA.rows[match];
  const image = rowImage(view, match, 72);
  if (image) item.append(image);
  item.append(textElement("strong", `${sign} ${word}`), ...captions(match, [view]));
  const cosine = DATA.retrieval.similarity === "cosine";
  const near = cosine ? `cosine ${similarity.toFixed(3)}`
    : `distance ${(-similarity).toPrecision(3)}`;
  item.append(textElement("span", near.replace("-", "−")));
  return item;
}

function showMatches() {
  const from = Number(checked("direction"));
  const { index } = query;
  const row = DATA.rows[index];
  element("row").value = row;

  const rows = [queryRow(`Row of ${VIEWS[from]}`, from, index)];
  if (DATA.images[1 - from] || DATA.texts[1 - from])
    rows.push(queryRow(`Partner of ${VIEWS[1 - from]}`, 1 - from, index));
  element("retrieval-query").replaceChildren(...rows);

  const similarities = retrieval.similarities[from].row(index);
  const tiles = retrieval.matches[from].row(index).map((match, k) =>
    tile(1 - from, match, index, similarities[k]));
  element("retrieval-matches").replaceChildren(...tiles);

  const rank = retrieval.ranks[from].at(index, 0) / 2;
  element("retrieval-summary").textContent =
    `Row ${row} of ${VIEWS[from]}: its partner has rank ${rank} among ` +
    `${DATA.rows.length.toLocaleString("en")} rows of ${VIEWS[1 - from]}.`;
}

function choose(index) {
  const n = DATA.rows.length;
  query.index = (index + n) % n;
  showMatches();
  for (const listener of query.listeners) listener();
}

// Some row numbers may not be shown: take the next that is, in the direction of the change.
function chooseNumber(wanted) {
  const current = DATA.rows[query.index];
  const after = DATA.rows.findIndex((row) => row >= wanted);
  if (wanted >= current || after === 0) return choose(after < 0 ? DATA.rows.length - 1 : after);
  choose(after < 0 ? DATA.rows.length - 1 : DATA.rows[after] === wanted ? after : after - 1);
}

element("row").addEventListener("change", (event) => {
  const wanted = event.target.valueAsNumber;
  if (Number.isFinite(wanted)) chooseNumber(wanted);
  else showMatches();
});
element("row-previous").addEventListener("click", () => choose(query.index - 1));
element("row-next").addEventListener("click", () => choose(query.index + 1));
element("row-random").addEventListener("click", () =>
  choose(Math.floor(Math.random() * DATA.rows.length)));
onChecked("direction", showMatches);
showMatches();

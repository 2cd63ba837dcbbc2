// What a reader sees of every visible text of the page: its size on the screen, and its contrast with what is below it.
(() => {
  const parse = (color) => {
    const [r, g, b, a = 1] = (color.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
    return { r, g, b, a };
  };
  const over = (top, below) => ({
    r: top.r * top.a + below.r * (1 - top.a),
    g: top.g * top.a + below.g * (1 - top.a),
    b: top.b * top.a + below.b * (1 - top.a),
    a: 1,
  });
  const luminance = ({ r, g, b }) => {
    const [x, y, z] = [r, g, b].map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const contrast = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const fill = (element) => {
    const style = getComputedStyle(element);
    const color = parse(style.fill);
    return { ...color, a: style.fill === "none" ? 0 : color.a * Number(style.fillOpacity) };
  };
  const canvas = parse(getComputedStyle(document.body ?? document.documentElement).backgroundColor);
  const page = canvas.a ? canvas : { r: 255, g: 255, b: 255, a: 1 };
  const background = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, layer) => over(layer, below), page);
  };

  const texts = [];
  const add = (words, size, color, below) =>
    texts.push({ words: words.trim().slice(0, 60), size, contrast: contrast(over(color, below), below) });

  for (const svg of document.querySelectorAll("svg")) {
    if (!svg.getBoundingClientRect().width) continue;
    const areas = [...svg.querySelectorAll("rect")].map((rect) => ({ rect, box: rect.getBoundingClientRect() }));
    for (const text of svg.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
      const below = areas
        .filter(({ rect, box }) => rect.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING
          && box.left <= x && x <= box.right && box.top <= y && y <= box.bottom)
        .reduce((below, { rect }) => over(fill(rect), below), svg.parentElement ? background(svg.parentElement) : page);
      // Text outside of boxes has an outline in the colour of the paper.
      const style = getComputedStyle(text);
      const outlined = style.stroke !== "none" ? parse(style.stroke) : below;
      const matrix = text.getScreenCTM();
      add(text.textContent, parseFloat(style.fontSize) * Math.hypot(matrix.a, matrix.b), fill(text), outlined);
    }
  }
  if (document.body) {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const parent = walker.currentNode.parentElement;
      if (!walker.currentNode.textContent.trim() || parent.closest("svg, style, script") || !parent.checkVisibility()) continue;
      const style = getComputedStyle(parent);
      add(walker.currentNode.textContent, parseFloat(style.fontSize), parse(style.color), background(parent));
    }
  }

  // Text of a drawing must not reach beyond it.
  const outside = [];
  for (const svg of document.querySelectorAll("svg")) {
    const whole = svg.getBoundingClientRect();
    if (!whole.width) continue;
    for (const text of svg.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      if (box.left < whole.left - 1 || box.right > whole.right + 1) outside.push(text.textContent);
    }
  }
  const scrolled = document.scrollingElement ?? document.documentElement;
  return {
    texts,
    outside,
    overflow: scrolled.scrollWidth - innerWidth,
    headings: [...document.querySelectorAll("h1, h2")].filter((heading) => heading.checkVisibility()).length,
    tables: [...document.querySelectorAll("table")].filter(
      (table) => !table.caption?.textContent || [...table.querySelectorAll("th")].some((cell) => !cell.scope)).length,
    drawings: [...document.querySelectorAll("svg")].filter((svg) => svg.getBoundingClientRect().width).map((svg) => ({
      name: svg.getAttribute("aria-label") ?? "",
      title: svg.querySelector(":scope > title")?.textContent ?? "",
      description: svg.querySelector(":scope > desc")?.textContent ?? "",
    })),
  };
})()

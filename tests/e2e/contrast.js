// Finds text that is hard to read: every visible run of text, its colour against what lies behind
// it (colours of all ancestors laid over each other, opacity included), by WCAG 2.2's formula.
(limit) => {
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = 1;
  const brush = canvas.getContext('2d', { willReadFrequently: true });
  const rgba = (color) => {
    brush.clearRect(0, 0, 1, 1);
    brush.fillStyle = color;
    brush.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = brush.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a), 1];
  const light = (color) => {
    const [r, g, b] = color.slice(0, 3).map((part) => {
      const c = part / 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (one, two) => {
    const [low, high] = [light(one), light(two)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const groundOf = (element) => {
    const chain = [];
    for (let one = element; one; one = one.parentElement) chain.unshift(one);
    return chain.reduce((ground, one) => over(rgba(getComputedStyle(one).backgroundColor), ground), [255, 255, 255, 1]);
  };
  const opacityOf = (element) => {
    let opacity = 1;
    for (let one = element; one; one = one.parentElement) opacity *= getComputedStyle(one).opacity;
    return opacity;
  };
  const seen = new Set();
  const found = [];
  let looked = 0;
  const look = (element, text, style) => {
    if (!text.trim() || !element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true })) return;
    const { width, height } = element.getBoundingClientRect();
    if (width < 2 || height < 2) return; // for screen readers alone
    looked += 1;
    const ground = groundOf(element);
    const [r, g, b, a] = rgba(style.color);
    const value = ratio(over([r, g, b, a * opacityOf(element)], ground), ground);
    if (value >= limit) return;
    const what = `${value.toFixed(2)} <${element.tagName.toLowerCase()} class="${element.className}"> ${text.trim().slice(0, 40)}`;
    if (!seen.has(what)) found.push(what);
    seen.add(what);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    look(element, walker.currentNode.data, getComputedStyle(element));
  }
  for (const field of document.querySelectorAll('input, textarea'))
    look(field, field.value || field.placeholder, getComputedStyle(field, field.value ? null : '::placeholder'));
  return { looked, found };
}

// The tools that read the page: elements, and pictures. The helper puts this function into tab.js.
(clip) => {
  const MAX_PICTURE = 4_500_000; // characters of a data URL; the gateway takes 5 MiB
  const MAX_ELEMENTS = 20_000; // of a page that is read or drawn

  // A person's secrets: the content of such a field is in no answer and in no picture.
  const SECRET = /pass|secret|token|csrf|xsrf|nonce|auth|api.?key|otp|cvc|cvv|card|\bpin\b/i;
  const isSecret = (e) =>
    ["password", "hidden"].includes(e.type) ||
      /password|cc-|one-time/.test(e.getAttribute("autocomplete") ?? "") ||
    SECRET.test(`${e.getAttribute("name") ?? ""} ${e.id}`);

  const ADDRESSES = ["href", "src", "srcset", "action", "formaction", "poster", "ping", "cite",
    "data"];

  // Returns the text of an attribute that may be shown, or null.
  const visible = (e, { name, value }) => {
    const typed = name === "value" && !["button", "submit", "reset", "checkbox",
      "radio"].includes(e.type);
    if (SECRET.test(name) || typed || (name === "content" && isSecret(e))) return null;
    return ADDRESSES.includes(name) ? value.split(/[?#]/)[0] : value;
  };

  const attributes = (e) =>
    [...e.attributes].slice(0, 40).map((a) => {
      const value = visible(e, a);
      return `${a.name}=${value === null ? "(hidden)" : JSON.stringify(clip(value, 200))}`;
    });

  // A copy of the page in a document that loads and runs nothing.
  const inertCopy = () => {
    const from = [document.documentElement, ...document.documentElement.querySelectorAll("*")];
    if (from.length > MAX_ELEMENTS) {
      throw new Error(`the page has ${from.length} elements, and ${MAX_ELEMENTS} are looked at at most`);
    }
    const inert = document.implementation.createHTMLDocument("");
    const root = inert.importNode(document.documentElement, true);
    inert.replaceChild(root, inert.documentElement);
    return { inert, root, from, to: [root, ...root.querySelectorAll("*")] };
  };

  // Selectors are tried on a copy without hidden values: input[value^="a"] would tell a value
  // letter by letter.
  const elements = (selector, limit) => {
    const { inert, from, to } = inertCopy();
    const original = new Map();
    to.forEach((e, i) => {
      original.set(e, from[i]);
      for (const a of [...e.attributes]) {
        const value = visible(from[i], a);
        if (value === null) e.removeAttributeNode(a);
        else if (value !== a.value) a.value = value;
      }
    });
    try {
      return [...inert.querySelectorAll(selector)].slice(0, limit).map((e) => original.get(e));
    } catch {
      throw new Error(`${JSON.stringify(clip(selector, 200))} is no CSS selector`);
    }
  };

  const words = (e, limit) =>
    e.matches("script, style, noscript, template, textarea") ? "" : clip((e.innerText ?? "").trim(),
      limit);

  const outline = (root) => {
    const found = [];
    const visit = (e, depth) => {
      if (found.length >= 300 || depth > 12 ||
        e.matches("script, style, noscript, template")) return;
      const named = ["id", "class", "name", "type", "role", "aria-label", "href"].filter((n) =>
        e.hasAttribute(n));
      const own = [...e.childNodes].filter((n) => n.nodeType === Node.TEXT_NODE).map((n) =>
        n.data.trim()).join(" ");
      const text = own.trim() &&
        e.localName !== "textarea" ? ` ${JSON.stringify(clip(own.trim(), 60))}` : "";
      const shown = named.map((n) =>
        `${n}=${JSON.stringify(clip(visible(e, e.getAttributeNode(n)) ?? "", 60))}`);
      found.push(`${"  ".repeat(depth)}${[e.localName, ...shown].join(" ")}${text}`);
      for (const child of e.children) visit(child, depth + 1);
    };
    visit(root, 0);
    return found.join("\n");
  };

  const query = ({ selector, show: what = "text", limit = 20 }) => {
    const found = elements(selector, limit);
    const say = {
      text: (e) => words(e, 4000),
      attributes: (e) => `${e.localName} ${attributes(e).join(" ")}`,
      outline,
    }[what];
    const all = found.map((e, i) => `[${i}] ${say(e)}`).join("\n");
    return found.length ? all : "no element matches";
  };

  // ---- A picture: a copy of the page is drawn as an SVG image, which loads nothing and runs
  // nothing

  const sheets = () => {
    let text = "";
    for (const sheet of [...document.styleSheets, ...document.adoptedStyleSheets]) {
      try {
        for (const rule of sheet.cssRules) text += `${rule.cssText}\n`;
      } catch {
        // of another origin: the page itself may not read it either
      }
    }
    return text;
  };

  const pixels = (e) => {
    const canvas = e instanceof HTMLCanvasElement ? e : document.createElement("canvas");
    try {
      if (e !== canvas) {
        if (!e.complete || !e.naturalWidth) return "";
        canvas.width = Math.min(e.naturalWidth, 1280);
        canvas.height = Math.max(1, Math.round((e.naturalHeight * canvas.width) / e.naturalWidth));
        canvas.getContext("2d").drawImage(e, 0, 0, canvas.width, canvas.height);
      }
      return canvas.toDataURL();
    } catch {
      return ""; // an image of another origin
    }
  };

  const fixCopy = (from, to) => {
    for (const { name, namespaceURI } of [...to.attributes]) {
      const plain = namespaceURI || /^[a-zA-Z_][\w.-]*$/.test(name);
      if (!plain || /^on/i.test(name) || name === "srcset") to.removeAttribute(name);
    }
    if (from.matches("img, canvas")) {
      const { width, height } = from.getBoundingClientRect();
      const image = document.createElement("img");
      image.setAttribute("style",
        `${to.getAttribute("style") ?? ""};width:${width}px;height:${height}px`);
      for (const name of ["class", "id"]) if (to.hasAttribute(name)) image.setAttribute(name,
        to.getAttribute(name));
      const data = pixels(from);
      if (data) image.src = data;
      to.replaceWith(image);
    } else if (from.matches("input")) {
      to.setAttribute("value", from.type === "password" ? "•".repeat(8) : isSecret(from) ? "" : from.value);
      to.toggleAttribute("checked", from.checked);
    } else if (from.matches("textarea")) {
      to.textContent = isSecret(from) ? "" : from.value;
    } else if (from.matches("option")) {
      to.toggleAttribute("selected", from.selected);
    }
  };

  const copy = () => {
    const { root, from, to } = inertCopy();
    from.forEach((e, i) => fixCopy(e, to[i]));
    for (const e of root.querySelectorAll("script, noscript, link, style, iframe, object, embed, video, meta, base")) {
      e.remove();
    }
    const style = document.createElement("style");
    style.textContent = sheets();
    root.querySelector("head")?.append(style);
    root.style.cssText += `;width:${innerWidth}px;min-height:${innerHeight}px;transform-origin:0 0;`
      + `transform:translate(${-scrollX}px,${-scrollY}px)`;
    return new XMLSerializer().serializeToString(root).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "");
  };

  const background = () => {
    for (const e of [document.documentElement, document.body]) {
      const colour = e ? getComputedStyle(e).backgroundColor : "";
      if (colour && !/^rgba\(.*, 0\)$/.test(colour)) return colour;
    }
    return "white";
  };

  const screenshot = async ({ selector = "" }) => {
    const [element] = selector ? elements(selector, 1) : [null];
    if (selector && !element) throw new Error("no element matches");
    element?.scrollIntoView({ block: "nearest", behavior: "instant" });
    const box = element?.getBoundingClientRect() ??
      { left: 0, top: 0, width: innerWidth, height: innerHeight };
    const image = new Image();
    image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(
      `<svg xmlns="http://www.w3.org/2000/svg" width="${innerWidth}" height="${innerHeight}">`
      + `<foreignObject width="100%" height="100%">${copy()}</foreignObject></svg>`);
    await image.decode().catch(() => {
      throw new Error("the browser can't draw a copy of this page: its Content-Security-Policy may not "
        + "allow images from data: addresses");
    });
    const canvas = document.createElement("canvas");
    const scale = Math.min(1, 1280 / Math.max(1, box.width));
    canvas.width = Math.max(1, Math.round(box.width * scale));
    canvas.height = Math.max(1, Math.min(4000, Math.round(box.height * scale)));
    const pen = canvas.getContext("2d");
    pen.fillStyle = background();
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.scale(scale, scale);
    pen.drawImage(image, -box.left, -box.top);
    for (const form of [["image/png"], ["image/jpeg", 0.8], ["image/jpeg", 0.4]]) {
      const data = canvas.toDataURL(...form);
      if (data.length <= MAX_PICTURE) return { image: data };
    }
    throw new Error("the picture is too large; name a smaller element");
  };

  return { query, screenshot };
}

import { call } from "./api.js";
import { h } from "./dom.js";

// signIn makes the page of a browser that is not signed in.
export function signIn() {
  const field = h("input", {
    id: "credential", type: "password", autocomplete: "off", spellcheck: "false", required: true,
    "aria-describedby": "signin-hint signin-fault",
  });
  const fault = h("p.fault", { id: "signin-fault", role: "alert" });
  const button = h("button.primary", { type: "submit" }, "Sign in");
  const go = async (e) => {
    e.preventDefault();
    fault.textContent = "";
    button.disabled = true;
    try {
      await enter(field.value.trim());
    } catch (error) {
      fault.textContent =
        error.status === 401
          ? "This is not this gateway's admin token. It has a new one after each start."
          : error.message;
      field.select();
    } finally {
      button.disabled = false;
    }
  };
  return h("main.signin",
    h("h1", "tapgw"),
    h("p", "You are not signed in. In a terminal on this machine, run"),
    h("pre", h("code", "tapctl open")),
    h("p", "and it opens this page with a link that works once."),
    h("form", { onsubmit: go },
      h("label", { for: "credential" }, "Or paste the link, its code, or the admin token"),
      h("div.row", field, button),
      h("p.hint", { id: "signin-hint" },
        "tapctl open --print shows a link. The token lies in .admin-token; it is sent once and not kept here."),
      fault));
}

// signedOut makes the page of a browser that is signed in no more, or whose gateway has ended.
export function signedOut() {
  return h("main.signin",
    h("h1", "tapgw"),
    h("p", { role: "alert" },
      "You are signed out, or the gateway of this page has ended. In a terminal on this " +
      "machine, run"),
    h("pre", h("code", "tapctl open")),
    h("p", "and it opens the page of the gateway that runs now."));
}

// enter opens a sign-in link on this gateway, from the whole link or the part that was pasted.
async function enter(text) {
  let code = text;
  if (URL.canParse(text)) {
    code = new URL(text).searchParams.get("code");
    if (!code) throw new Error("This link has no code. Take the whole of what tapctl open --print shows.");
  } else if (text.startsWith("adm-")) {
    const link = await call("POST", "/signin-links", {}, { Authorization: `Bearer ${text}` });
    code = new URL(link.url).searchParams.get("code");
  }
  location.assign(`/signin?code=${encodeURIComponent(code)}${location.hash}`); // back to the same view
}

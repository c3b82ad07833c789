import { h } from "./dom.js";
import { announce } from "./dialogs.js";

// The colours that a person chose, in all tabs and until changed: the system's, light or dark.
const storage = "tapgw.look";
const looks = {
  system: ["◐", "Colours: as the system has them"], light: ["☀", "Colours: light"], dark: ["☾", "Colours: dark"],
};

const chosen = () => (looks[localStorage.getItem(storage)] ? localStorage.getItem(storage) : "system");

const button = h("button", { type: "button", class: "ghost", onclick: () => {
  const names = Object.keys(looks);
  localStorage.setItem(storage, names[(names.indexOf(chosen()) + 1) % names.length]);
  announce(show());
} });

// show puts the colours in force and says which they are.
function show() {
  const look = chosen(), [sign, says] = looks[look];
  document.documentElement.style.colorScheme = look === "system" ? "" : look;
  button.textContent = sign;
  button.title = says;
  button.setAttribute("aria-label", says);
  return says;
}

show();
addEventListener("storage", show);

// lookButton is the button that goes to the next colours.
export const lookButton = button;

import { h } from "./dom.js";
import { announce } from "./dialogs.js";

// The colours that a person chose, in all tabs and until changed: the system's, light or dark. Each
// is a color-scheme.
const lookStorage = "tapgw.look";
const system = "light dark";
const looks = {
  [system]: ["◐", "Colours: as the system has them"], light: ["☀", "Colours: light"],
    dark: ["☾", "Colours: dark"],
};

const chosenLook = () => (looks[localStorage[lookStorage]] ? localStorage[lookStorage] : system);

const button = h("button.ghost", { onclick: () => {
  const names = Object.keys(looks);
  localStorage[lookStorage] = names[(names.indexOf(chosenLook()) + 1) % names.length];
  announce(show());
} });

// show puts the colours in force and says which they are.
function show() {
  const look = chosenLook(), [sign, says] = looks[look];
  document.documentElement.style.colorScheme = look;
  button.textContent = sign;
  return (button.title = button.ariaLabel = says);
}

show();
addEventListener("storage", show);

// lookButton is the button that goes to the next colours.
export const lookButton = button;

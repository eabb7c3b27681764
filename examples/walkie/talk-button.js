// One button for pointers, keys and screen readers: hold it, or press it once to start and once to stop.

export class TalkButton {
  #isByPointer = false;
  #heldKey = null; // the code of the key that holds the button
  isHeld = false;

  /**
   * @param {HTMLButtonElement} button
   * @param {HTMLInputElement} toggle pressed once instead of held
   * @param {{onPress: () => void, onRelease: () => void}} handlers
   */
  constructor(button, toggle, handlers) {
    Object.assign(this, { button, toggle, handlers });
    button.addEventListener('pointerdown', (event) => this.#down(event));
    button.addEventListener('contextmenu', (event) => event.preventDefault());
    for (const name of ['pointerup', 'pointercancel']) addEventListener(name, () => this.#up(true));
    addEventListener('keydown', (event) => this.#isKey(event) && this.#key(event));
    addEventListener('keyup', (event) => this.#keyUp(event));
    // A screen reader presses a button without a pointer and without keys, so nothing is held.
    button.addEventListener('click', ({ detail }) => detail === 0 && this.#switch());
    // The release is not noticed when the window has lost the focus.
    addEventListener('blur', () => {
      this.#heldKey = null;
      if (!toggle.checked) this.#set(false);
    });
  }

  /** The space bar is the button wherever it has no other function; Enter is if the button has the focus. */
  #isKey({ code, target }) {
    if (target === this.button) return code === 'Space' || code === 'Enter';
    return code === 'Space' && !target.closest?.('button, input, select, textarea, a, summary');
  }

  #key(event) {
    event.preventDefault();
    if (event.repeat) return;
    this.#heldKey = event.code;
    if (this.toggle.checked) this.#switch();
    else this.#set(true);
  }

  /** The pressed key releases the button, wherever the focus is now. */
  #keyUp(event) {
    if (event.code !== this.#heldKey) return;
    this.#heldKey = null;
    event.preventDefault();
    this.#up(false);
  }

  #down(event) {
    if (event.button !== 0) return;
    this.#isByPointer = true;
    if (this.toggle.checked) this.#switch();
    else this.#set(true);
  }

  #up(isPointer) {
    if (isPointer && !this.#isByPointer) return;
    this.#isByPointer = false;
    if (!this.toggle.checked) this.#set(false);
  }

  #switch() { this.#set(!this.isHeld); }

  #set(isHeld) {
    if (this.isHeld === isHeld || (isHeld && this.button.getAttribute('aria-disabled') === 'true')) return;
    this.isHeld = isHeld;
    if (isHeld) this.handlers.onPress();
    else this.handlers.onRelease();
  }
}

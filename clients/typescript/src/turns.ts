/** Whose turn it is. */
export class Turns {
  #taken = false;
  readonly #waiting: (() => void)[] = [];

  /** Takes the turn; false if it did not come within ms. */
  async take(ms?: number): Promise<boolean> {
    if (!this.#taken) {
      this.#taken = true;
      return true;
    }
    return new Promise((resolve) => {
      const mine = () => {
        clearTimeout(timer);
        resolve(true);
      };
      const timer =
        ms === undefined
          ? undefined
          : setTimeout(() => {
              this.#waiting.splice(this.#waiting.indexOf(mine), 1);
              resolve(false);
            }, ms);
      this.#waiting.push(mine);
    });
  }

  /** Passes the turn on. */
  pass(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#taken = false;
    else next();
  }
}

// The claims of a token that a client needs. Only the server verifies them. Pure.

/** The room in which this token may interrupt, or null. */
export function dispatcherRoom(token) {
  try {
    const [, claims] = token.split('.');
    const text = new TextDecoder().decode(Uint8Array.from(atob(claims.replaceAll('-', '+').replaceAll('_', '/')), (c) => c.charCodeAt(0)));
    return /^dispatch\/(.+)$/.exec(JSON.parse(text).register.floor[0])[1];
  } catch {
    return null;
  }
}

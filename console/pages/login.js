// 16 Sign in.
import { fill, h } from '../dom.js';
import { field } from '../parts/form.js';
import { inside } from '../route.js';
import { login } from '../session.js';
import { session } from '../state.js';
import { WORDS } from '../words.js';

const told = (error) => (error.code === 111 ? WORDS.throttled(error.retry_after ?? 60) : error.code === 101 ? WORDS.wrongPassword(error.tries_left)
  : `You were not signed in: ${error.message}. Try again.`);

export default {
  mount(root, context) {
    const { label, node } = session.get();
    const password = h('input', { type: 'password', autocomplete: 'current-password', required: true, name: 'password' });
    const problem = h('p.problem', { role: 'alert', id: 'login-problem' });
    const submit = h('button.primary', { type: 'submit' }, 'Sign in');
    password.setAttribute('aria-describedby', 'login-problem');
    async function sign(event) {
      event.preventDefault();
      submit.disabled = true;
      try {
        const answer = await login(password.value);
        if (!answer.error) return context.enter(inside(context.params.next));
        fill(problem, told(answer.error));
        password.setAttribute('aria-invalid', 'true');
        password.select();
      } catch {
        fill(problem, 'You were not signed in: the node does not answer. Try again.');
      }
      submit.disabled = false;
      return password.focus();
    }
    const where = [label, node?.name, node?.version].filter(Boolean).join(' · ');
    root.append(h('form.alone', { on: { submit: sign } }, h('h1', null, 'Touchline'), h('p.soft', null, where),
      context.params.why === 'out' && h('p', null, WORDS.signedOut), field('Password', password), problem, submit));
    password.focus();
  },
};

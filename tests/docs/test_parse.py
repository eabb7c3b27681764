"""The hints of pages, as the test of pages reads them, and TOML that is written into a file."""

import pathlib
import tempfile
import unittest

import merge
import page


def steps(text: str):
    return page.steps(text, "docs/guides/x.md", pathlib.Path("/nonexistent"))


def block(language: str, hint: str = "", text: str = "true\n") -> str:
    return f"Words.\n\n{hint}```{language}\n{text}```\n"


class Hints(unittest.TestCase):
    def test_what_is_done_without_a_hint(self):
        for language, action in [("sh", "run"), ("toml", "check"), ("text", ""), ("json", ""), ("mermaid", "")]:
            [step] = steps(block(language))
            self.assertEqual((step.line, step.text, step.action), (3, "true\n", action), language)

    def test_what_is_done_with_a_hint(self):
        cases = {
            "run": ("run", ""), "run: background /listens on .*/": ("background", "listens on .*"), "run: output /a/b/": ("output", "a/b"),
            "run: fails /no/": ("fails", "no"), "file: a/b.toml": ("file", "a/b.toml"), "file: b append": ("append", "b"), "file: b merge": ("merge", "b"),
        }
        for hint, expected in cases.items():
            [step] = steps(block("sh", f"<!-- {hint} -->\n"))
            self.assertEqual((step.action, step.argument), expected, hint)

    def test_a_setup_runs_where_it_stands(self):
        first, second, third = steps("<!-- setup: one -->\n\n<!-- setup:\ntwo\nthree -->\n" + block("sh"))
        self.assertEqual([first.text, second.text, third.action], ["one", "two\nthree", "run"])
        self.assertEqual([first.line, second.line], [1, 3])

    def test_a_program_needs_a_hint(self):
        for language in ["js", "python", "go", "java", "rust", "sql", "nginx", "caddy", "yaml", "dockerfile", "ini", ""]:
            self.assertRaises(page.PageError, steps, block(language))
        self.assertEqual(steps(block("js", "<!-- file: a.js -->\n"))[0].action, "file")
        self.assertRaises(page.PageError, steps, block("go", "<!-- run -->\n"))

    def test_a_hint_stands_before_a_fence_and_has_a_known_form(self):
        for hint in ["<!-- run -->\n\n", "<!-- run: output a -->\n", "<!-- run: sometimes /a/ -->\n", "<!-- file: a over -->\n", "<!-- file: -->\n"]:
            self.assertRaises(page.PageError, steps, block("sh", hint))
        self.assertEqual(steps(block("sh", "<!-- words -->\n"))[0].action, "run")
        self.assertRaises(page.PageError, steps, block("sh") + "```sh\ntrue\n")

    def test_what_is_not_run_says_how_it_was_tried(self):
        text = block("sh", "<!-- not run: needs Kubernetes -->\n")
        self.assertRaises(page.PageError, steps, text)
        self.assertEqual(steps(text + "How this was tried: by hand.\n")[0].action, "")
        self.assertRaises(page.PageError, steps, block("sh", "<!-- not run: -->\n") + "How this was tried: by hand.\n")

    def test_a_suite_that_tests_a_page_names_the_page(self):
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory)
            text = block("js", "<!-- tested by: tests/a.mjs -->\n")
            self.assertRaises(page.PageError, page.steps, text, "docs/a.md", root)
            (root / "tests").mkdir()
            (root / "tests/a.mjs").write_text("reads docs/a.md")
            self.assertEqual(page.steps(text, "docs/a.md", root)[0].action, "")
            self.assertRaises(page.PageError, page.steps, text, "docs/b.md", root)

    def test_a_block_of_a_list_has_no_indentation(self):
        [step] = steps("1. Words.\n\n   ```sh\n   if true; then\n     true\n   fi\n   ```\n")
        self.assertEqual(step.text, "if true; then\n  true\nfi\n")

    def test_a_fence_in_a_block_is_text(self):
        [step] = steps("````text\n```js\n```\n````\n")
        self.assertEqual(step.text, "```js\n```\n")


class Merge(unittest.TestCase):
    def test_keys_go_into_their_sections(self):
        base = "a = 1\n[client]\nb = 2 # old\nc = 3\n[[list]]\nname = 'x'\n"
        more = "[client]   # of everybody\nb = 4\n\n[[list]]\nname = 'y'\n[new]\nd = 5\n"
        self.assertEqual(merge.merge(base, more), "a = 1\n[client]\nb = 4\n\nc = 3\n[[list]]\nname = 'x'\n[[list]]\nname = 'y'\n[new]\nd = 5\n")


if __name__ == "__main__":
    unittest.main()

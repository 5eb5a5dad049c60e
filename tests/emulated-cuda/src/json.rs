//! A writer of JSON text, as much of it as the report needs.

use std::fmt::Write;

/// One JSON value in the making. Commas are its business, matching brackets the caller's.
#[derive(Default)]
pub(crate) struct Json {
    text: String,
    fresh: bool,
}

impl Json {
    fn separate(&mut self) {
        if !self.fresh && !self.text.is_empty() {
            self.text.push(',');
        }
        self.fresh = false;
    }

    fn open(&mut self, bracket: char) {
        self.separate();
        self.text.push(bracket);
        self.fresh = true;
    }

    fn close(&mut self, bracket: char) {
        self.text.push(bracket);
        self.fresh = false;
    }

    /// An object with what `body` puts in it.
    pub(crate) fn object(&mut self, body: impl FnOnce(&mut Json)) {
        self.open('{');
        body(self);
        self.close('}');
    }

    /// An array of one value per item.
    pub(crate) fn array<I: IntoIterator>(
        &mut self,
        items: I,
        mut each: impl FnMut(&mut Json, I::Item),
    ) {
        self.open('[');
        for item in items {
            each(self, item);
        }
        self.close(']');
    }

    /// The name of the value that follows.
    pub(crate) fn key(&mut self, name: &str) -> &mut Json {
        self.string(name);
        self.text.push(':');
        self.fresh = true;
        self
    }

    pub(crate) fn string(&mut self, value: &str) {
        self.separate();
        self.text.push('"');
        for c in value.chars() {
            match c {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                c if c < ' ' => {
                    let _ = write!(self.text, "\\u{:04x}", c as u32);
                }
                c => self.text.push(c),
            }
        }
        self.text.push('"');
    }

    pub(crate) fn number(&mut self, value: impl Into<u64>) {
        self.separate();
        let _ = write!(self.text, "{}", value.into());
    }

    pub(crate) fn boolean(&mut self, value: bool) {
        self.separate();
        self.text.push_str(if value { "true" } else { "false" });
    }

    /// A number, or null.
    pub(crate) fn maybe(&mut self, value: Option<u64>) {
        match value {
            Some(value) => self.number(value),
            None => {
                self.separate();
                self.text.push_str("null");
            }
        }
    }

    /// Starts a new line, for the reader's eyes.
    pub(crate) fn line(&mut self) {
        self.text.push('\n');
    }

    pub(crate) fn into_text(mut self) -> String {
        self.text.push('\n');
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::Json;

    #[test]
    fn nested_values_and_escapes() {
        let mut json = Json::default();
        json.object(|json| {
            json.key("a\"b").array([1u64, 2], |json, n| json.number(n));
            json.key("c").object(|_| ());
            json.key("d").maybe(None);
            json.key("e").string("line\nend\u{1}");
            json.key("f").boolean(true);
        });
        assert_eq!(
            json.into_text(),
            "{\"a\\\"b\":[1,2],\"c\":{},\"d\":null,\"e\":\"line\\nend\\u0001\",\"f\":true}\n"
        );
    }
}

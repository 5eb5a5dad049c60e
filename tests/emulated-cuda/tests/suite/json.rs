//! A reader of JSON, for reports.

use std::collections::BTreeMap;

/// A value; numbers are whole in reports.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Json {
    Null,
    Boolean(bool),
    Number(u64),
    Text(String),
    Array(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

impl Json {
    /// Parses a text; panics where it is not JSON of this kind.
    pub(crate) fn parse(text: &str) -> Json {
        let mut rest = text.trim();
        let value = value(&mut rest);
        assert!(rest.trim().is_empty(), "after the report: {rest:?}");
        value
    }

    /// The value under a path of keys, `"nvcomp.zstd.corrupt"` say; null where there is none.
    pub(crate) fn at(&self, path: &str) -> &Json {
        path.split('.').fold(self, |found, key| match found {
            Json::Object(map) => map.get(key).unwrap_or(&Json::Null),
            _ => &Json::Null,
        })
    }

    pub(crate) fn number(&self, path: &str) -> u64 {
        match self.at(path) {
            Json::Number(number) => *number,
            Json::Null => 0,
            other => panic!("{path} is {other:?}"),
        }
    }

    pub(crate) fn text(&self, path: &str) -> &str {
        match self.at(path) {
            Json::Text(text) => text,
            other => panic!("{path} is {other:?}"),
        }
    }

    pub(crate) fn items(&self, path: &str) -> &[Json] {
        match self.at(path) {
            Json::Array(items) => items,
            other => panic!("{path} is {other:?}"),
        }
    }
}

fn expect(rest: &mut &str, token: char) -> bool {
    *rest = rest.trim_start();
    match rest.strip_prefix(token) {
        Some(after) => {
            *rest = after;
            true
        }
        None => false,
    }
}

fn value(rest: &mut &str) -> Json {
    *rest = rest.trim_start();
    if expect(rest, '{') {
        let mut map = BTreeMap::new();
        while !expect(rest, '}') {
            let Json::Text(key) = value(rest) else { panic!("a key before {rest:?}") };
            assert!(expect(rest, ':'));
            map.insert(key, value(rest));
            expect(rest, ',');
        }
        return Json::Object(map);
    }
    if expect(rest, '[') {
        let mut items = Vec::new();
        while !expect(rest, ']') {
            items.push(value(rest));
            expect(rest, ',');
        }
        return Json::Array(items);
    }
    if expect(rest, '"') {
        return Json::Text(text(rest));
    }
    let end = rest.find([',', ']', '}', '\n']).unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    *rest = after;
    match word.trim() {
        "null" => Json::Null,
        "true" => Json::Boolean(true),
        "false" => Json::Boolean(false),
        number => Json::Number(number.parse().unwrap_or_else(|_| panic!("{number:?}"))),
    }
}

fn text(rest: &mut &str) -> String {
    let mut found = String::new();
    let mut characters = rest.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => {
                *rest = &rest[at + 1..];
                return found;
            }
            '\\' => match characters.next() {
                Some((_, 'n')) => found.push('\n'),
                Some((_, 'u')) => (0..4).for_each(|_| {
                    characters.next();
                }),
                Some((_, other)) => found.push(other),
                None => break,
            },
            other => found.push(other),
        }
    }
    panic!("a text without an end");
}

//! What the steps found, collected for the last one to print.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One test.
struct Chapter {
    title: String,
    /// Markdown; may be empty.
    text: String,
    took: Duration,
    failure: Option<String>,
}

/// Tests that were not run, with reasons.
static LEFT_OUT: Mutex<Vec<String>> = Mutex::new(Vec::new());
static CHAPTERS: Mutex<Vec<Chapter>> = Mutex::new(Vec::new());
/// The device is measured, so nothing else may run meanwhile, whatever `--test-threads` says.
static TURN: Mutex<()> = Mutex::new(());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a test and keeps what it wrote, and why it failed if it did.
pub(crate) fn chapter(title: &str, body: impl FnOnce(&mut String)) {
    let _turn = lock(&TURN);
    let (mut text, begun) = (String::new(), Instant::now());
    let outcome = catch_unwind(AssertUnwindSafe(|| body(&mut text)));
    println!("\n{text}");
    let failure = outcome.as_ref().err().map(|panic| message(&**panic));
    lock(&CHAPTERS).push(Chapter { title: title.into(), text, took: begun.elapsed(), failure });
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
}

/// A test that is not run here.
pub(crate) fn left_out(title: &str, why: &str) {
    println!("left out: {title} ({why})");
    lock(&LEFT_OUT).push(format!("{title} ({why})"));
}

/// What a panic says.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panicked").into()
}

/// One row of a Markdown table.
pub(crate) fn row(text: &mut String, cells: &[&dyn std::fmt::Display]) {
    for cell in cells {
        write!(text, "| {cell} ").unwrap();
    }
    text.push_str("|\n");
}

/// The first row and the line below it: the first column holds words, the others numbers.
pub(crate) fn head(text: &mut String, cells: &[&str]) {
    let cells: Vec<&dyn std::fmt::Display> = cells.iter().map(|cell| cell as _).collect();
    row(text, &cells);
    text.push_str("|---|");
    cells.iter().skip(1).for_each(|_| text.push_str("---:|"));
    text.push('\n');
}

/// Everything so far, as Markdown; and whether all of it passed.
pub(crate) fn render(heading: &str) -> (String, bool) {
    let chapters = lock(&CHAPTERS);
    let mut text = format!("## {heading}\n\n");
    let failed: Vec<&Chapter> = chapters.iter().filter(|c| c.failure.is_some()).collect();
    let took: Duration = chapters.iter().map(|chapter| chapter.took).sum();
    let passed = chapters.len() - failed.len();
    writeln!(text, "{passed} of {} checks passed in {:.0?}.", chapters.len(), took).unwrap();
    for (why, titles) in by_reason(&failed) {
        writeln!(text, "- **failed**: {}: {why}", titles.join("; ")).unwrap();
    }
    for test in lock(&LEFT_OUT).iter() {
        writeln!(text, "- left out: {test}").unwrap();
    }
    for chapter in chapters.iter().filter(|chapter| !chapter.text.is_empty()) {
        let cut = if chapter.failure.is_some() { " (failed: incomplete)" } else { "" };
        writeln!(text, "\n### {}{cut}\n\n{}", chapter.title, chapter.text.trim_end()).unwrap();
    }
    (text, failed.is_empty())
}

/// A device that is gone fails everything for one reason.
fn by_reason<'a>(failed: &[&'a Chapter]) -> BTreeMap<String, Vec<&'a str>> {
    let mut reasons = BTreeMap::<String, Vec<&str>>::new();
    for chapter in failed {
        let why = chapter.failure.as_deref().unwrap_or_default().replace('\n', " ");
        reasons.entry(why).or_default().push(&chapter.title);
    }
    reasons
}

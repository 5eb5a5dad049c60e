//! The same test in a process of its own: a fault of the device ends CUDA there and nowhere else.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "GPUGTIFF_HARDWARE_CHILD";
/// A device that hangs must not keep the report from being written.
const PATIENCE: Duration = Duration::from_secs(600);
/// Lines of a child that are meant for its parent begin with this.
const MARK: &str = "child says: ";

/// What this process was started to do, if it is a child.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Tells the parent.
pub(crate) fn say(what: &str) {
    println!("\n{MARK}{what}");
}

/// Runs the test `name` of this program in a child that has the given role, and returns what it
/// said. Fails if the child did.
pub(crate) fn run(name: &str, role: &str) -> Vec<String> {
    attempt(name, role).unwrap_or_else(|why| panic!("{name} in a child ({role}) {why}"))
}

/// The same where a child may fail, crash or hang: how it ended.
pub(crate) fn attempt(name: &str, role: &str) -> Result<Vec<String>, String> {
    let program = std::env::current_exe().unwrap();
    let arguments = ["--exact", name, "--ignored", "--nocapture", "--test-threads=1"];
    let mut command = Command::new(program);
    // Its last words go into the report, which is no place for a backtrace.
    command.args(arguments).env(ROLE, role).env("RUST_BACKTRACE", "0");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    // Children say little: what they say fits into the pipes.
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            return Err(format!("hangs: it was ended after {PATIENCE:?}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let said = lines(&output);
    match output.status.success() && !said.is_empty() {
        true => Ok(said),
        false => Err(format!("ended with {}: {}", output.status, last_words(&output))),
    }
}

fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter_map(|line| line.strip_prefix(MARK)).map(String::from).collect()
}

fn last_words(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

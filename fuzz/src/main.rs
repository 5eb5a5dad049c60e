//! Runs the fuzz targets on mutated seeds for a bounded time, with any compiler.
//!
//! ```text
//! gpugtiff-fuzz [--seconds N] [--seed S] [--target NAME]   each target, or one, for N seconds
//! gpugtiff-fuzz --target NAME FILE…                        replays inputs
//! gpugtiff-fuzz --target NAME --seeds FOLDER               writes the seeds, for libFuzzer
//! ```
//!
//! Each target runs in a process of its own. Its inputs depend on the seed and their number alone, so
//! that the one that crashed or hung can be made again: it is saved in `target/fuzz/findings`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use gpugtiff_fuzz::{TARGETS, Target, seeds, target};

/// One input may take this long.
const HANG: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Arguments {
    seconds: u64,
    seed: u64,
    target: Option<String>,
    seeds: Option<PathBuf>,
    child: bool,
    files: Vec<PathBuf>,
}

fn arguments() -> Option<Arguments> {
    let from_environment = std::env::var("GPUGTIFF_SEED").ok().and_then(|seed| seed.parse().ok());
    let clock = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| u64::from(now.subsec_nanos()))
    };
    let seed = from_environment.unwrap_or_else(clock);
    let mut arguments = Arguments { seconds: 4, seed, ..Arguments::default() };
    let mut list = std::env::args().skip(1);
    while let Some(argument) = list.next() {
        match argument.as_str() {
            "--seconds" => arguments.seconds = list.next()?.parse().ok()?,
            "--seed" => arguments.seed = list.next()?.parse().ok()?,
            "--target" => arguments.target = Some(list.next()?),
            "--seeds" => arguments.seeds = Some(list.next()?.into()),
            "--child" => arguments.child = true,
            file => arguments.files.push(file.into()),
        }
    }
    Some(arguments)
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!("usage: gpugtiff-fuzz [--seconds N] [--seed S] [--target NAME] [FILE...]");
        return ExitCode::from(2);
    };
    let chosen: Vec<&Target> = match &arguments.target {
        Some(name) => target(name).into_iter().collect(),
        None => TARGETS.iter().collect(),
    };
    if chosen.is_empty() {
        eprintln!("no such target; there are {}", TARGETS.map(|target| target.name).join(", "));
        return ExitCode::from(2);
    }
    if let Some(folder) = &arguments.seeds {
        return write_seeds(chosen[0], folder);
    }
    if !arguments.files.is_empty() {
        for file in &arguments.files {
            (chosen[0].run)(&fs::read(file).expect("an input"));
        }
        return ExitCode::SUCCESS;
    }
    if arguments.child {
        child(chosen[0], &arguments);
        return ExitCode::SUCCESS;
    }
    println!("GPUGTIFF_SEED={}", arguments.seed);
    let failed = chosen.iter().filter(|target| !parent(target, &arguments)).count();
    ExitCode::from(u8::from(failed > 0))
}

fn write_seeds(target: &Target, folder: &Path) -> ExitCode {
    fs::create_dir_all(folder).expect("a folder for seeds");
    for (i, seed) in seeds::seeds(target.name).iter().enumerate() {
        fs::write(folder.join(format!("seed-{i}")), seed).expect("a seed");
    }
    ExitCode::SUCCESS
}

fn progress_file(target: &Target) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/fuzz");
    fs::create_dir_all(&folder).expect("target/fuzz");
    folder.join(format!("{}-{}.progress", target.name, std::process::id()))
}

/// Runs inputs until time is up, and notes the number of each before.
fn child(target: &Target, arguments: &Arguments) {
    let progress = File::create(arguments.progress()).expect("a file for progress");
    let seeds = seeds::seeds(target.name);
    let end = Instant::now() + Duration::from_secs(arguments.seconds);
    let mut number = 0u64;
    while Instant::now() < end {
        progress.write_all_at(&number.to_le_bytes(), 0).expect("progress");
        (target.run)(&mutation(&seeds, arguments.seed, number));
        number += 1;
    }
    progress.write_all_at(&number.to_le_bytes(), 0).expect("progress");
}

impl Arguments {
    /// Where a child notes its progress.
    fn progress(&self) -> PathBuf {
        std::env::var_os("GPUGTIFF_FUZZ_PROGRESS").map_or_else(|| "/dev/null".into(), PathBuf::from)
    }
}

/// Starts a child for a target and watches it; says whether all went well.
fn parent(target: &Target, arguments: &Arguments) -> bool {
    let progress = progress_file(target);
    let start = Instant::now();
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--child", "--target", target.name])
        .args(["--seconds", &arguments.seconds.to_string(), "--seed", &arguments.seed.to_string()])
        .env("GPUGTIFF_FUZZ_PROGRESS", &progress)
        .spawn()
        .expect("a process for the target");
    let number = || {
        let bytes = fs::read(&progress).unwrap_or_default();
        bytes.try_into().map_or(0, u64::from_le_bytes)
    };
    let (mut last, mut since) = (0, Instant::now());
    let outcome = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break if status.success() { None } else { Some(status.to_string()) };
        }
        let now = number();
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() > HANG + Duration::from_secs(arguments.seconds.min(5)) {
            let _ = child.kill();
            let _ = child.wait();
            break Some(format!("no progress for {} s", since.elapsed().as_secs()));
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let runs = number();
    let _ = fs::remove_file(&progress);
    let seconds = start.elapsed().as_secs_f64();
    let Some(why) = outcome else {
        println!("{:<11} {runs:>9} inputs in {seconds:.1} s", target.name);
        return true;
    };
    let input = mutation(&seeds::seeds(target.name), arguments.seed, runs);
    let folder = progress.with_file_name("findings");
    fs::create_dir_all(&folder).expect("a folder for findings");
    let path = folder.join(format!("{}-{}-{runs}", target.name, arguments.seed));
    fs::write(&path, input).expect("a finding");
    println!("{:<11} FAILED at input {runs} ({why}): {}", target.name, path.display());
    println!(
        "{:<11} replay: cargo run --release -p gpugtiff-fuzz -- --target {0} FILE",
        target.name
    );
    false
}

/// A small generator of random numbers: splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// The `number`-th input: the seeds as they are first, then seeds with a few changes.
fn mutation(seeds: &[Vec<u8>], seed: u64, number: u64) -> Vec<u8> {
    if let Some(first) = seeds.get(number as usize) {
        return first.clone();
    }
    let mut random = Random(seed.wrapping_mul(0x1_0000_01B3) ^ number);
    let mut bytes = seeds.get(random.below(seeds.len())).cloned().unwrap_or_default();
    for _ in 0..1 + random.below(6) {
        mutate(&mut bytes, seeds, &mut random);
    }
    bytes
}

fn mutate(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    let len = bytes.len();
    let at = random.below(len);
    match random.below(9) {
        0 if len > 0 => bytes[at] ^= 1 << random.below(8),
        1 if len > 0 => bytes[at] = random.next() as u8,
        2 if len > 0 => bytes[at] = [0, 1, 0x7F, 0x80, 0xFF][random.below(5)],
        3 => bytes.truncate(at),
        4 => bytes.insert(at, random.next() as u8),
        5 if len >= at + 4 => {
            let odd = [0, 1, 255, 65_535, 65_536, 1 << 24, i32::MAX as u32, u32::MAX, len as u32];
            let value = odd[random.below(odd.len())];
            let value =
                if random.below(2) == 0 { value.to_le_bytes() } else { value.to_be_bytes() };
            bytes[at..at + 4].copy_from_slice(&value);
        }
        6 => {
            let stretch = bytes[at..(at + random.below(40)).min(len)].to_vec();
            let to = random.below(len);
            bytes.splice(to..to, stretch);
        }
        7 => {
            let end = (at + random.below(40)).min(len);
            bytes.drain(at..end);
        }
        _ => {
            let Some(other) = seeds.get(random.below(seeds.len())) else { return };
            let from = random.below(other.len());
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
    }
    bytes.truncate(1 << 16);
}

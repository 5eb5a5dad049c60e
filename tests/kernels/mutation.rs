//! Would these tests notice a wrong instruction? One instruction of the PTX is changed at a time
//! and the kernel tried; every change that nobody notices is explained in survivors.txt.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ptx::Module;

use crate::cases::{LAYOUTS, Layout};
use crate::device::{Device, Mode, Random};
use crate::{PTX, apply, finish, packed, place, stow, undo, unpack};

const SEED: u64 = 0x5eed_0090;
/// Changes a kernel.
const QUOTAS: [(&str, usize); 10] = [
    ("undo", 48),
    ("apply", 40),
    ("adler32", 14),
    ("measure", 12),
    ("gather", 14),
    ("place", 14),
    ("lzw", 24),
    ("packbits", 24),
    ("stow", 24),
    ("finish", 20),
];
/// Thread instructions after which a changed kernel is taken to hang.
const BUDGET: u64 = 20_000_000;
/// A line each: kernel, line, instruction, what it became, and why nobody can notice.
const SURVIVORS: &str = include_str!("survivors.txt");

/// A changed instruction.
struct Mutant {
    kernel: &'static str,
    line: usize,
    original: String,
    changed: String,
}

impl Mutant {
    /// As survivors.txt has it.
    fn name(&self) -> String {
        let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let changed = plain(&self.changed);
        let changed = if changed.is_empty() { "nothing" } else { &changed };
        let (kernel, line) = (self.kernel, self.line + 1);
        format!("{kernel}, line {line}: {} -> {changed}", plain(&self.original))
    }

    fn module(&self) -> Module {
        let lines = PTX.lines().enumerate();
        let text: Vec<&str> =
            lines.map(|(i, line)| if i == self.line { &self.changed[..] } else { line }).collect();
        Module::parse(&text.join("\n")).unwrap_or_else(|e| panic!("{}: {e}", self.name()))
    }
}

/// Opcodes for each other.
const SWAPS: [(&str, &str); 13] = [
    ("add.s16", "sub.s16"),
    ("add.s32", "sub.s32"),
    ("add.s64", "sub.s64"),
    ("and.b32", "or.b32"),
    ("and.b64", "or.b64"),
    ("and.pred", "or.pred"),
    ("min.u32", "max.u32"),
    ("min.u64", "max.u64"),
    ("shl.b32", "shr.u32"),
    ("shl.b64", "shr.u64"),
    ("xor.b32", "or.b32"),
    ("xor.b64", "or.b64"),
    ("shfl.sync.up.b32", "shfl.sync.down.b32"),
];

/// Comparisons, off by one and turned round.
const COMPARISONS: [(&str, &str); 12] = [
    ("setp.lt", "setp.le"),
    ("setp.le", "setp.lt"),
    ("setp.gt", "setp.ge"),
    ("setp.ge", "setp.gt"),
    ("setp.lt", "setp.ge"),
    ("setp.le", "setp.gt"),
    ("setp.gt", "setp.le"),
    ("setp.ge", "setp.lt"),
    ("setp.eq", "setp.ne"),
    ("setp.ne", "setp.eq"),
    ("setp.eq", "setp.ge"),
    ("setp.ne", "setp.gt"),
];

/// What an instruction may be changed to, by the kind of change.
fn changes(line: &str) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    for (a, b) in SWAPS.iter().flat_map(|(a, b)| [(a, b), (b, a)]) {
        if opcode(line) == *a {
            found.push(("opcode", line.replacen(a, b, 1)));
        }
    }
    for (a, b) in COMPARISONS {
        // Plain bits are equal or not, but not in order.
        let ordered = !opcode(line).contains(".b") || matches!(b, "setp.eq" | "setp.ne");
        if opcode(line).starts_with(a) && ordered {
            found.push(("comparison", line.replacen(a, b, 1)));
        }
    }
    if line.contains("@%p") {
        found.push(("predicate", line.replacen("@%p", "@!%p", 1)));
    }
    if line.contains("@!%p") {
        found.push(("predicate", line.replacen("@!%p", "@%p", 1)));
    }
    if opcode(line).starts_with("bar.") {
        found.push(("barrier", String::new()));
    }
    found.extend(other_offset(line).map(|changed| ("offset", changed)));
    found.extend(other_immediate(line).map(|changed| ("immediate", changed)));
    if opcode(line).starts_with("selp")
        && let Some((start, rest)) = line.split_once(',')
        && let [a, b, p] = rest.split(',').collect::<Vec<_>>()[..]
    {
        found.push(("selection", format!("{start},{b},{a},{p}")));
    }
    found
}

fn opcode(line: &str) -> &str {
    line.split_whitespace().find(|word| !word.starts_with('@')).unwrap_or("")
}

/// The next element instead of this one.
fn other_offset(line: &str) -> Option<String> {
    let opcode = opcode(line);
    let memory = ["ld.global", "ld.shared", "st.global", "st.shared"];
    if !memory.iter().any(|start| opcode.starts_with(start)) {
        return None;
    }
    let bits: usize = opcode.rsplit('.').next()?.get(1..)?.parse().ok()?;
    let vector = if opcode.contains(".v4") {
        4
    } else if opcode.contains(".v2") {
        2
    } else {
        1
    };
    let (before, rest) = line.split_once('[')?;
    let (place, after) = rest.split_once(']')?;
    let (base, offset) = match place.split_once('+') {
        Some((base, offset)) => (base, offset.parse::<i64>().ok()?),
        None => (place, 0),
    };
    Some(format!("{before}[{base}+{}]{after}", offset + (vector * bits / 8) as i64))
}

/// One more than the number at the end.
fn other_immediate(line: &str) -> Option<String> {
    let numeric = ["add", "sub", "and", "shl", "shr", "setp", "mul", "mad", "selp", "mov.u32"];
    if !numeric.iter().any(|start| opcode(line).starts_with(start)) {
        return None;
    }
    let (before, last) = line.trim_end().strip_suffix(';')?.rsplit_once(',')?;
    let number: i64 = last.trim().parse().ok()?;
    Some(format!("{before}, {};", number + 1))
}

/// Changes spread over the kernels and over the kinds of change.
fn mutants() -> Vec<Mutant> {
    let mut random = Random::new(SEED);
    let mut mutants = Vec::new();
    for (kernel, quota) in QUOTAS {
        let mut kinds: BTreeMap<&str, Vec<Mutant>> = BTreeMap::new();
        let entry = format!(".visible .entry {kernel}(");
        let lines = PTX.lines().enumerate().skip_while(|(_, line)| **line != entry);
        for (number, line) in lines.take_while(|(_, line)| *line != "}") {
            for (kind, changed) in changes(line) {
                let original = line.to_owned();
                let mutant = Mutant { kernel, line: number, original, changed };
                kinds.entry(kind).or_default().push(mutant);
            }
        }
        let before = mutants.len();
        while mutants.len() - before < quota {
            for of_kind in kinds.values_mut().filter(|of_kind| !of_kind.is_empty()) {
                mutants.push(of_kind.swap_remove(random.below(of_kind.len())));
            }
        }
        mutants.truncate(before + quota);
    }
    mutants
}

/// Every case in every layout; all cases in one of them first.
fn with_layouts<T>(cases: &[T]) -> impl Iterator<Item = (&T, Layout)> {
    (0..LAYOUTS.len()).flat_map(move |turn| {
        let layout = move |number: usize| LAYOUTS[(number + turn) % LAYOUTS.len()];
        cases.iter().enumerate().map(move |(number, case)| (case, layout(number)))
    })
}

/// Tries a kernel with everything that may show a difference, the likeliest first.
fn try_kernel(module: &Module, kernel: &str) -> Result<(), String> {
    let mut random = Random::new(SEED);
    // Whole tiles take more than rows of them.
    let budget = if matches!(kernel, "lzw" | "packbits") { 4 * BUDGET } else { BUDGET };
    let device = || Device::with_budget(budget);
    let adversarial = [1, 2, 3].map(Mode::Adversarial);
    match kernel {
        "undo" => {
            let cases = undo::small_cases(&mut random);
            for (case, layout) in with_layouts(&cases) {
                let case = undo::Case { layout, ..*case };
                undo::run(module, Mode::Converged, &case, &mut random, device())?;
            }
            for (case, mode) in cases.iter().zip(adversarial.iter().cycle()) {
                undo::run(module, *mode, case, &mut random, device())?;
            }
            undo::run_fates(module, Mode::Converged, device())?;
            undo::run_absent(module, device)?;
        }
        "apply" => {
            let cases = apply::small_cases(&mut random);
            for (case, layout) in with_layouts(&cases) {
                let case = apply::Case { layout, ..*case };
                apply::run(module, Mode::Converged, &case, &mut random, device())?;
            }
            for (case, mode) in cases.iter().zip(adversarial.iter().cycle()) {
                apply::run(module, *mode, case, &mut random, device())?;
            }
        }
        "adler32" => {
            let chunks = packed::adler_chunks(&mut random);
            for mode in [Mode::Converged, adversarial[0], adversarial[1]] {
                packed::run_adler(module, mode, &chunks, device())?;
            }
        }
        "measure" => {
            for (count, zlib) in [(1, true), (33, false), (1025, true), (3000, false)] {
                let batch = packed::Sizes::random(&mut random, count, zlib);
                for mode in [Mode::Converged, adversarial[0], adversarial[1]] {
                    packed::run_measure(module, mode, &batch, device())?;
                }
            }
        }
        "place" => {
            let cases = place::small_cases(&mut random);
            for case in &cases {
                place::run_all(module, Mode::Converged, case, &mut random, device)?;
            }
            for ([bytes, samples], arrangement) in place::compact_cases() {
                place::run_compact(module, [bytes, samples, 32], arrangement, 2, device)?;
            }
            for case in place::cases_with_differences() {
                place::run_differences(module, &case, &mut random, device)?;
            }
            for (case, mode) in cases.iter().zip(adversarial.iter().cycle()) {
                place::run_all(module, *mode, case, &mut random, device)?;
            }
        }
        "stow" => {
            stow::run(module, Mode::Converged, stow::FRAMINGS[1], &stow::headers(), 1, device())?;
            for (turn, framing) in stow::FRAMINGS.iter().cycle().take(12).enumerate() {
                let tiles = stow::random_tiles(&mut random, *framing, 60);
                let mode = if turn < 9 { Mode::Converged } else { adversarial[turn - 9] };
                stow::run(module, mode, *framing, &tiles, 1 + turn as u32 % 2, device())?;
            }
        }
        "finish" => {
            for (turn, mode) in [Mode::Converged].iter().chain(&adversarial).enumerate() {
                for case in finish::cases(&mut random) {
                    let blocks = 1 + turn as u32 % 2;
                    finish::run(module, *mode, &case, blocks, &mut random, device())?;
                }
            }
        }
        "lzw" | "packbits" => {
            let streams = unpack::small_cases(&mut random, kernel);
            let (odd, large) = (unpack::odd_shapes(kernel), unpack::large(&mut random, kernel));
            for streams in [&streams, &odd, &large].iter().flat_map(|streams| streams.chunks(6)) {
                unpack::run(module, kernel, Mode::Converged, streams, device())?;
            }
            for mode in adversarial {
                // The larger ones.
                unpack::run(module, kernel, mode, &streams[streams.len() - 12..], device())?;
            }
        }
        _ => {
            for (count, most, blocks) in [(40, 40, 1), (20, 3000, 2), (2, 20_000, 2)] {
                let tiles = packed::random_tiles(&mut random, count, most);
                let sums: Vec<u32> = tiles.iter().map(|_| random.next() as u32).collect();
                for mode in [Mode::Converged, adversarial[0]] {
                    packed::run_gather(module, mode, &tiles, None, blocks, device())?;
                    packed::run_gather(module, mode, &tiles, Some(&sums), blocks, device())?;
                }
            }
        }
    }
    Ok(())
}

#[test]
fn changed_instructions_are_noticed() {
    for (kernel, _) in QUOTAS {
        try_kernel(crate::kernels(), kernel).unwrap_or_else(|message| panic!("{message}"));
    }
    let mutants = mutants();
    let (next, survivors) = (AtomicUsize::new(0), Mutex::new(BTreeSet::new()));
    let work = || {
        while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
            let module = mutant.module();
            // An interpreter that gives up has noticed, too.
            let noticed = catch_unwind(AssertUnwindSafe(|| try_kernel(&module, mutant.kernel)));
            if matches!(noticed, Ok(Ok(()))) {
                println!("survived: {}", mutant.name());
                survivors.lock().unwrap().insert(mutant.name());
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    let survivors = survivors.into_inner().unwrap();
    println!("{} changes, {} survived", mutants.len(), survivors.len());
    let explained: BTreeSet<String> = SURVIVORS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.split_once(" because ")?.0.to_owned()))
        .collect();
    let unexplained: Vec<_> = survivors.difference(&explained).collect();
    assert!(unexplained.is_empty(), "not explained in survivors.txt: {unexplained:#?}");
    let stale: Vec<_> = explained.difference(&survivors).collect();
    assert!(stale.is_empty(), "noticed or not tried any more: {stale:#?}");
}

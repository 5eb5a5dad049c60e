//! What a device and its libraries say of themselves, for reports.

use super::CudaEngine;
use crate::engine::Codec;

/// Raw bytes of the tiles that nvCOMP is asked about.
const TILES: [usize; 4] = [64 << 10, 256 << 10, 1 << 20, 16 << 20];
/// Tiles in the batch that it is asked about.
const BATCH: usize = 64;

impl CudaEngine {
    /// Names and values, in an order for people.
    pub fn facts(&self) -> Vec<(String, String)> {
        let gpu = &self.0.gpu;
        let device = &gpu.device;
        let mut facts: Vec<(String, String)> = Vec::new();
        let mut say = |name: &str, value: String| facts.push((name.into(), value));
        say("device", format!("{}: {}", device.ordinal, self.device()));
        say("compute capability", format!("{}.{}", device.capability.0, device.capability.1));
        say("multiprocessors", device.multiprocessors.to_string());
        let Ok(current) = device.enter() else { return facts };
        if let Ok((free, total)) = current.memory() {
            say("memory", format!("{} of {} MiB free", free >> 20, total >> 20));
        }
        let text = |answer: Result<String, super::Fault>| answer.unwrap_or_else(|f| f.to_string());
        for (codec, efforts) in [(Codec::Deflate, 0..6), (Codec::Zstd, 0..1)] {
            let aligned = |effort| {
                let needs = gpu.nvcomp.alignments(codec, effort);
                text(
                    needs
                        .map(|n| format!("in {}, out {}, temp {}", n.input, n.output, n.temporary)),
                )
            };
            say(&format!("{codec:?} alignments, unpacking"), aligned(None));
            say(&format!("{codec:?} alignments, packing"), aligned(Some(0)));
            for bytes in TILES {
                let kib = bytes >> 10;
                let temp = gpu.nvcomp.decompress_temp(codec, BATCH, bytes);
                let name = format!("{codec:?} {BATCH} × {kib} KiB, temp to unpack");
                say(&name, text(temp.map(|n| n.to_string())));
                for effort in efforts.clone() {
                    let temp = gpu.nvcomp.compress_temp(codec, effort, BATCH, bytes);
                    let most = gpu.nvcomp.max_output(codec, effort, bytes);
                    let value = temp.and_then(|t| most.map(|m| format!("{t}, at most {m} a tile")));
                    let name =
                        format!("{codec:?} {BATCH} × {kib} KiB, temp to pack, algorithm {effort}");
                    say(&name, text(value));
                }
            }
        }
        facts
    }
}

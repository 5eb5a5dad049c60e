//! Whether a GPU may be there, judged by names in the file system: nothing is loaded, opened or
//! initialised, so that every process can afford to ask.

use std::ffi::OsStr;
use std::path::Path;

/// libcuda under WSL, which Windows provides where it has an NVIDIA driver. /dev/dxg is there for
/// any make of GPU.
const WSL_LIBRARY: &str = "usr/lib/wsl/lib/libcuda.so.1";

/// Whether the file system below `root` shows an NVIDIA device: the driver's control node and the
/// node of at least one GPU, or WSL's libcuda.
pub fn device_is_plausible(root: &Path) -> bool {
    let nodes = root.join("dev");
    let has_gpu = || {
        let entries = std::fs::read_dir(&nodes).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| is_gpu_node(&entry.file_name()))
    };
    (nodes.join("nvidiactl").exists() && has_gpu()) || root.join(WSL_LIBRARY).exists()
}

/// nvidia0, nvidia1 …, and not nvidiactl, nvidia-uvm or nvidia-modeset.
fn is_gpu_node(name: &OsStr) -> bool {
    let number = name.to_str().and_then(|name| name.strip_prefix("nvidia")).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer for a root that has these files and no others.
    fn ask(case: usize, files: &[&str]) -> bool {
        let name = format!("gpugtiff-plausible-{}-{case}", std::process::id());
        let root = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&root).unwrap();
        for file in files {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, []).unwrap();
        }
        let answer = device_is_plausible(&root);
        std::fs::remove_dir_all(&root).unwrap();
        answer
    }

    #[test]
    fn a_driver_needs_a_device() {
        for (case, (files, plausible)) in [
            (&[][..], false),
            (&["dev/null"], false),
            (&["dev/nvidiactl"], false),
            (&["dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia-modeset"], false),
            (&["dev/nvidia0"], false),
            (&["dev/dxg"], false),
            (&["dev/dxg", "usr/lib/wsl/lib/libd3d12.so"], false),
            (&["dev/nvidiactl", "dev/nvidia0"], true),
            (&["dev/nvidiactl", "dev/nvidia12", "dev/nvidia-uvm"], true),
            (&["dev/dxg", "usr/lib/wsl/lib/libcuda.so.1"], true),
            (&["usr/lib/wsl/lib/libcuda.so.1"], true),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(ask(case, files), plausible, "{files:?}");
        }
    }
}

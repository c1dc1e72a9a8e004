//! The texts of Redisson's own scripts, from its jars. They are no part of this repository: `make redisson-texts` reads
//! them out of the jars that Maven fetches, into `target/redisson/scripts`.

use std::path::{Path, PathBuf};

/// Lock, since 3.19.0.
pub const ACQUIRE: &str = "149c5a8bf18676fd99e9e6e24923bd64d9b62f94";
/// Lock, 3.12.3 to 3.18.1.
pub const ACQUIRE_3_12: &str = "dad0f8d619e548e04f21fb48d50be5034df3adae";
/// Lock, until 3.12.2.
pub const ACQUIRE_2_2: &str = "9401052d872adfd0179ef8c8e8c028512707629a";
/// Unlock, since 3.24.0.
pub const UNLOCK: &str = "6866459238a13a701d42f4971f12d9f3a50e2442";
/// Unlock, 3.22.0 to 3.23.5.
pub const UNLOCK_3_22: &str = "778cea8aada230ae060b432fc333adaec85f2f4c";
/// Unlock, 3.10.6 to 3.21.3.
pub const UNLOCK_3_10: &str = "3ffe249c16dee540ac8ab32e39bd408626b9aff7";
/// Unlock, until 3.10.5.
pub const UNLOCK_2_7: &str = "93cfc048f82624d1670a310aa0ad58918c0824a5";
/// Renewals, since 3.44.0.
pub const RENEW: &str = "6a3d31570dc6f4b0bd32bcdc8e75667747c6f635";
/// Renewal, until 3.43.0.
pub const RENEW_2_13: &str = "8e19a1ddbdee9138df9f32a480c57addab4353d1";
/// Unlock by force, since 3.22.0.
pub const FORCE: &str = "605e338249a7a1d40df83b04f7658354f883b41b";
/// Unlock by force, until 3.21.3.
pub const FORCE_2_2: &str = "7e9c80b3d786b95d5d4aaf8fd73adb9775fa6fb1";

/// Fenced lock, with its token.
pub const FENCED_ACQUIRE_TOKEN: &str = "49babb5a1e6a0c5f188c2ae62b93b51cdfd63e45";
/// Lock to read, since 3.11.1.
pub const READ_ACQUIRE: &str = "95553a6ff11176c18e71344e89d116b06fd6f753";
/// Unlock of a reader, since 3.44.0.
pub const READ_UNLOCK: &str = "6e1b10e11ac0a3ed8e902562ecd32ce01b553039";
/// Unlock of a reader, 3.24.0 to 3.43.0.
pub const READ_UNLOCK_3_24: &str = "5947c0fee6ca25ae094ec1b3e7a2559a9273d29f";
/// Unlock of a reader, 3.22.0 to 3.23.5.
pub const READ_UNLOCK_3_22: &str = "92a54c31a4dc3b46f81e24a6dd5bb7d677c6f882";
/// Unlock of a reader, until 3.21.3.
pub const READ_UNLOCK_3_10: &str = "f5469be4bfe5232d519471092634b3ee84e5ee6f";
/// Unlock of readers by force, since 3.22.0.
pub const READ_FORCE: &str = "27dbe744e95c1d854a7f556cc6817030de2d0d01";
/// Lock to write.
pub const WRITE_ACQUIRE: &str = "6306ba3bf1f563b284bed52d305fce615c6664d9";
/// Unlock of a writer, since 3.44.0.
pub const WRITE_UNLOCK: &str = "21f5fb0f8ddfa9be5c3e0c9757c128796add75c6";

/// The directory of the texts.
pub fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/redisson/scripts")
}

/// The text of the script with this SHA1.
///
/// # Panics
/// When the text is missing.
pub fn text(sha1: &str) -> String {
    let path = dir().join(format!("{sha1}.lua"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| {
        let path = path.display();
        panic!(
            "{path}: {error}. The texts of Redisson's scripts are fetched by: make redisson-texts"
        )
    })
}

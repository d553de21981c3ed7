//! Who a thread is, in the numbers of its own user namespace.

use crate::error::Error;
use crate::proc;
use crate::proc::status::Status;
use crate::state::Credentials;

/// Of a task whose status is this. Of the secure bits only the task itself can tell.
pub(crate) fn read(pid: u32, status: &Status, secure_bits: u32) -> Result<Credentials, Error> {
    let (users, groups) = (Map::read(pid, "uid_map")?, Map::read(pid, "gid_map")?);
    let supplementary = status.words("Groups");
    let supplementary = supplementary.iter().filter_map(|group| group.parse().ok());
    let capabilities = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
    let mut masks = [0; 5];
    for (mask, name) in masks.iter_mut().zip(capabilities) {
        *mask = status.mask(name)?;
    }
    Ok(Credentials {
        users: status.numbers("Uid")?.map(|user| users.inside(user)),
        groups: status.numbers("Gid")?.map(|group| groups.inside(group)),
        supplementary: supplementary.map(|group| groups.inside(group)).collect(),
        capabilities: masks,
        secure_bits,
        no_new_privileges: status.words("NoNewPrivs").first() == Some(&"1"),
    })
}

/// What a user namespace calls the numbers of ours.
struct Map(Vec<[u32; 3]>);

/// Who has no number inside.
const NOBODY: u32 = 65_534;

impl Map {
    fn read(pid: u32, name: &str) -> Result<Self, Error> {
        let text = proc::read(pid, name)?;
        let line = |line: &str| {
            let numbers: Vec<u32> =
                line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            numbers.try_into().ok()
        };
        Ok(Self(text.lines().filter_map(line).collect()))
    }

    fn inside(&self, number: u32) -> u32 {
        let found = self.0.iter().find_map(|[inside, outside, count]| {
            let offset = number.checked_sub(*outside).filter(|offset| offset < count)?;
            inside.checked_add(offset)
        });
        found.unwrap_or(NOBODY)
    }
}

/// What a process calls a user and a group of ours.
pub(crate) fn inside(pid: u32, [user, group]: [u32; 2]) -> Result<[u32; 2], Error> {
    Ok([Map::read(pid, "uid_map")?.inside(user), Map::read(pid, "gid_map")?.inside(group)])
}

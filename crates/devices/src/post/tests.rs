use machine::bus::{PortDevice, Size};

use super::Post;

#[test]
fn it_remembers_the_last_byte_until_reset() {
    let mut post = Post::default();
    post.write(0, Size::Byte, 0x5a);
    assert_eq!(post.read(0, Size::Byte), 0x5a);
    post.reset();
    assert_eq!(post.read(0, Size::Byte), 0);
}

//! Every story on the pure kernel: one test for each file.

use windlass_testkit::MapStore;

windlass_testkit::story_tests!(MapStore::default);

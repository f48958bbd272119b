#include "server/rpc/stream_items.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace gemmd {
namespace {

grpc::ByteBuffer Message(size_t bytes) {
  const grpc::Slice slice(std::string(bytes, 'x'));
  return grpc::ByteBuffer(&slice, 1);
}

StreamItemPtr Item(size_t bytes) {
  auto item = std::make_shared<StreamItem>(nullptr);
  item->bytes = bytes;
  return item;
}

TEST(StreamItemsTest, ThereIsRoomUpToTheNumberOfItems) {
  StreamItems items(2, 1000);
  const StreamItemPtr first = Item(1);
  EXPECT_TRUE(items.empty());
  items.Add(first);
  EXPECT_TRUE(items.HasRoom());
  items.Add(Item(1));
  EXPECT_FALSE(items.HasRoom());
  // An answer that waits to be written takes its item's place.
  EXPECT_EQ(items.Answer(first.get(), Message(1)), first);
  EXPECT_FALSE(items.HasRoom());
  EXPECT_EQ(items.TakeMessage().Length(), 1);
  items.Written();
  EXPECT_TRUE(items.HasRoom());
  EXPECT_EQ(items.unanswered().size(), 1);
}

TEST(StreamItemsTest, ThereIsRoomUpToTheBytesOfMessagesAndAnswers) {
  StreamItems items(9, 100);
  const StreamItemPtr large = Item(5000);
  EXPECT_TRUE(items.HasRoom());
  items.Add(large);  // alone
  EXPECT_FALSE(items.HasRoom());
  items.Discard(large.get());
  EXPECT_TRUE(items.empty());
  const StreamItemPtr small = Item(10);
  items.Add(small);
  EXPECT_TRUE(items.HasRoom());
  items.Answer(small.get(), Message(90));
  EXPECT_FALSE(items.HasRoom());
  items.Written();
  EXPECT_TRUE(items.HasRoom());
  EXPECT_TRUE(items.empty());
}

TEST(StreamItemsTest, AnItemIsParkedWhileTheServerHoldsAnother) {
  StreamItems items(9, 1000);
  const StreamItemPtr running = Item(1), waiting = Item(1);
  items.Add(running);
  items.Add(waiting);
  EXPECT_FALSE(items.Park(waiting));  // nothing is held that could come free
  items.SetStarted(running.get(), true);
  EXPECT_TRUE(items.Park(waiting));
  EXPECT_FALSE(items.HasRoom());
  items.Answer(running.get(), Message(1));
  EXPECT_EQ(items.TakeParked(), waiting);
  EXPECT_EQ(items.TakeParked(), nullptr);
  EXPECT_TRUE(items.Park(waiting));  // the answer has not been written yet
  EXPECT_EQ(items.TakeAllParked().size(), 1);
  items.Written();
  EXPECT_FALSE(items.Park(waiting));
}

TEST(StreamItemsTest, DroppedAnswersMakeRoom) {
  StreamItems items(3, 1000);
  for (int i = 0; i < 3; ++i) {
    const StreamItemPtr item = Item(1);
    items.Add(item);
    items.SetStarted(item.get(), true);
    items.Answer(item.get(), Message(1));
  }
  items.DropAnswers(1);
  EXPECT_TRUE(items.HasRoom());
  EXPECT_TRUE(items.HasAnswer());
  items.DropAnswers(0);
  EXPECT_TRUE(items.empty());
  EXPECT_FALSE(items.Park(Item(1)));
}

}  // namespace
}  // namespace gemmd

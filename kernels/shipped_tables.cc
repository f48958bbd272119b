#include <memory>
#include <vector>

#include "kernels/selection_table.h"

namespace gemmd {
namespace {

// CMake puts the files of tables/ here, as string literals.
constexpr const char* kTexts[] = {
#include "tables/shipped_tables.inc"
    nullptr};

}  // namespace

std::shared_ptr<const SelectionTable> ShippedTable(absl::string_view gpu) {
  for (const char* text : kTexts) {
    if (text == nullptr) break;
    auto table = SelectionTable::Parse(text);
    if (!table.ok() || table->stamp().gpu != gpu) continue;
    return std::make_shared<const SelectionTable>(*std::move(table));
  }
  return nullptr;
}

}  // namespace gemmd

#include "server/execute/thread_load.h"

namespace gemmd {
namespace {

thread_local bool t_has_more = false;

}  // namespace

bool ThreadHasMore() { return t_has_more; }
void SetThreadHasMore(bool has_more) { t_has_more = has_more; }

}  // namespace gemmd

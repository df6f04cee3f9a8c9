/* executed.c - notes the programs that a process executes after it has given up rights. The witness
 * calls these functions (record/executed.h) if it cannot write its own file. */
#include "record/executed.h"

#include "probe/direct_syscall.h"
#include "probe/session.h"
#include "probe/spare.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

/* Returns whether the new program will be able to load this library and to record itself. */
static bool will_be_recorded(const char *kind)
{
    const char *library = session_library();
    return strcmp(kind, "dynamic") == 0 && library != NULL && spare_is_inherited() &&
           !direct_failed(direct_call3(SYS_faccessat, AT_FDCWD, (long)library, R_OK));
}

EXPORTED void cairn_probe_executed(uint32_t process, const char *path, const char *kind,
                                   uint32_t error)
{
    if (!will_be_recorded(kind))
        spare_note_executed(process, error, kind, path);
}

EXPORTED void cairn_probe_not_executed(uint32_t process)
{
    spare_forget_executed(process);
}

/* asks_deepbind.c - calls dlopen() and dlmopen() with RTLD_DEEPBIND in several ways. The preloaded
 * library of shown_flags.c prints whether the flag has reached it. */
#include <dlfcn.h>
#include <stdio.h>

int main(void)
{
    int flags = RTLD_NOW | RTLD_DEEPBIND;
    printf("plugin ");
    dlopen("plugin.so", flags);
    printf("program ");
    dlopen(NULL, flags);
    printf("noload ");
    dlopen("plugin.so", flags | RTLD_NOLOAD);
    printf("namespace ");
    dlmopen(LM_ID_NEWLM, "plugin.so", flags);
    printf("base ");
    dlmopen(LM_ID_BASE, "plugin.so", flags);
    return 0;
}

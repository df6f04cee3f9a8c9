/* cxx_host.c - cxx_host PLUGIN: a C program that opens a C++ plugin. It succeeds if the plugin's
 * out-of-memory handling works. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *plugin = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*fails_well)(void) =
        plugin != NULL ? (int (*)(void))dlsym(plugin, "plugin_fails_well") : NULL;
    if (fails_well == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    return fails_well() ? 0 : 1;
}

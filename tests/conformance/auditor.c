/* auditor.c - the smallest auditing library (LD_AUDIT): it has only the function that the loader
 * requires. */
unsigned la_version(unsigned version);

__attribute__((visibility("default"))) unsigned la_version(unsigned version)
{
    return version;
}
